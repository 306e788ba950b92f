package redistest

import (
	"os/exec"
	"runtime"

	"go.uber.org/goleak"
)

// signal is what can be sent to a server, by its name without SIG.
type signal string

const (
	sigKill signal = "KILL"
	sigStop signal = "STOP"
	sigCont signal = "CONT"
)

// process is a child that is being waited for.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child was reaped
	err  error         // its end, to be read after done
}

// startProcess starts cmd. On Linux the child is killed when this process ends.
func startProcess(cmd *exec.Cmd) (*process, error) {
	dieWithParent(cmd)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the child and waits for it, all on one thread: what the kernel
// calls the death of the parent is the death of the thread that forked, and Go
// ends a thread when a goroutine ends while locked to it, which would take the
// server along in the middle of a test.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// IgnoreServers makes goleak overlook the goroutines of running servers, the
// shared one included, for tests that look for leaks while servers run.
func IgnoreServers() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/leaselimit/leaselimit/internal/redistest.(*process).run")
}
