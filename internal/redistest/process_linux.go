package redistest

import (
	"bytes"
	"fmt"
	"os"
)

// hasStopped reports whether a process that was sent SIGSTOP has come to a halt:
// the signal is sent at once and takes effect later.
func hasStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // no such process, or no /proc: nothing to wait for
	}
	// pid (name) state ...; the name may hold anything.
	_, rest, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return !ok || bytes.HasPrefix(rest, []byte("T"))
}
