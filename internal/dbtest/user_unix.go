//go:build unix

package dbtest

import (
	"cmp"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged gives dir to a user who is not root, and has the commands run as that user: the servers refuse to be root.
// For anybody else it does nothing.
func unprivileged(dir string, cmds ...*exec.Cmd) error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return err
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := cmp.Or(err1, err2, os.Chown(dir, int(uid), int(gid))); err != nil {
		return err
	}
	for _, cmd := range cmds {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir)
	}
	return nil
}
