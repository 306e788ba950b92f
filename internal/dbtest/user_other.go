//go:build !unix

package dbtest

import "os/exec"

// unprivileged does nothing where there is no root.
func unprivileged(string, ...*exec.Cmd) error { return nil }
