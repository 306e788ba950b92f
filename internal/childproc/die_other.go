//go:build !linux

package childproc

import "os/exec"

// dieWithParent does nothing: there is no such request outside Linux.
func dieWithParent(*exec.Cmd) {}
