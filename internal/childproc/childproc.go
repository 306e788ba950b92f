// Package childproc runs the server programs that tests talk to: child processes that end with the test process, and ports
// that test processes do not take from each other.
package childproc

import (
	"os/exec"
	"runtime"

	"go.uber.org/goleak"
)

// A Process is a child that is being waited for.
type Process struct {
	Cmd  *exec.Cmd
	Done chan struct{} // closed when the child was reaped
	Err  error         // its end, to be read after Done
}

// Start starts cmd. On Linux the child is killed when this process ends.
func Start(cmd *exec.Cmd) (*Process, error) {
	dieWithParent(cmd)
	p := &Process{Cmd: cmd, Done: make(chan struct{})}
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
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.Done)
	err := p.Cmd.Start()
	started <- err
	if err == nil {
		p.Err = p.Cmd.Wait()
	}
}

// IgnoreAll makes goleak overlook the goroutines of running children.
func IgnoreAll() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/leaselimit/leaselimit/internal/childproc.(*Process).run")
}
