package childproc

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that starts it
// ends, so that a killed test leaves no server behind.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
