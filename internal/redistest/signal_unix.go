//go:build unix

package redistest

import (
	"fmt"
	"os"
	"syscall"
)

func sendSignal(p *os.Process, sig signal) error {
	switch sig {
	case sigKill:
		return p.Signal(syscall.SIGKILL)
	case sigStop:
		return p.Signal(syscall.SIGSTOP)
	case sigCont:
		return p.Signal(syscall.SIGCONT)
	}
	return fmt.Errorf("unknown signal %q", sig)
}
