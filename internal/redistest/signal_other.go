//go:build !unix

package redistest

import (
	"fmt"
	"os"
)

func sendSignal(p *os.Process, sig signal) error {
	if sig == sigKill {
		return p.Kill()
	}
	return fmt.Errorf("signal %q: not on this system", sig)
}
