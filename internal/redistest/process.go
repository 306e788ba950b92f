package redistest

import (
	"github.com/leaselimit/leaselimit/internal/childproc"
	"go.uber.org/goleak"
)

// signal is what can be sent to a server, by its name without SIG.
type signal string

const (
	sigKill signal = "KILL"
	sigStop signal = "STOP"
	sigCont signal = "CONT"
)

// IgnoreServers makes goleak overlook the goroutines of running servers, the
// shared one included, for tests that look for leaks while servers run.
func IgnoreServers() goleak.Option { return childproc.IgnoreAll() }
