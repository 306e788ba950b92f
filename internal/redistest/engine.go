package redistest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/leaselimit/leaselimit/internal/childproc"
)

// engine is a way to run Redis programs. A server is told by its name, which
// also names its config file in dir.
type engine interface {
	// serve returns the command that runs a server in the foreground, with dir
	// as its working directory and the config file conf in it.
	serve(name, dir, conf string, args []string) *exec.Cmd
	// cli returns the command that runs redis-cli beside a running server.
	cli(ctx context.Context, name, password string, args []string) *exec.Cmd
	// signal sends sig, and for sigStop returns when it has taken effect.
	signal(sig signal, name string, p *childproc.Process) error
	// kill ends the server, also one that is still starting or is paused.
	kill(name string, p *childproc.Process) error
}

const nothingFound = "redistest: no Redis server to test with. Do one of these:\n" +
	"  - install the programs redis-server and redis-cli (apt-get install redis-server; brew install redis)\n" +
	"  - start Docker, with the image %s at hand or a registry in reach (LEASELIMIT_REDIS_IMAGE names another)\n" +
	"  - set REDIS_ADDR to a server's host:port (enough for tests that share a server, not for those that kill one or need a Cluster)\n" +
	"internal/redistest/provision.sh does the first on Debian.\n" +
	"Tried: "

// findEngine returns the way this machine runs Redis. It looks once.
var findEngine = sync.OnceValues(func() (engine, error) {
	return find(exec.LookPath, findDocker)
})

// find is findEngine with the machine as arguments.
func find(lookPath func(string) (string, error), docker func() (engine, error)) (engine, error) {
	server, err1 := lookPath("redis-server")
	cli, err2 := lookPath("redis-cli")
	notOnPath := errors.Join(err1, err2)
	if notOnPath == nil {
		return native{server, cli}, nil
	}
	e, notInDocker := docker()
	if notInDocker == nil {
		return e, nil
	}
	tried := strings.ReplaceAll(errors.Join(notOnPath, notInDocker).Error(), "\n", "; ")
	return nil, errors.New(strings.Replace(nothingFound, "%s", dockerImage(), 1) + tried)
}

// authEnv gives redis-cli a password. Where none is asked for it must not be
// set, not even to "": redis-cli would log in, and --cluster fails on that.
const authEnv = "REDISCLI_AUTH="

// native runs the programs of this machine.
type native struct{ serverPath, cliPath string }

func (n native) serve(_, dir, conf string, args []string) *exec.Cmd {
	// The server lives until it is killed, not until a context ends.
	cmd := exec.CommandContext(context.Background(), n.serverPath, append([]string{conf}, args...)...)
	cmd.Dir = dir
	return cmd
}

func (n native) cli(ctx context.Context, _, password string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.cliPath, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, authEnv) })
	if password != "" {
		cmd.Env = append(cmd.Env, authEnv+password)
	}
	return cmd
}

func (n native) signal(sig signal, _ string, p *childproc.Process) error {
	if err := sendSignal(p.Cmd.Process, sig); err != nil || sig != sigStop {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	return childproc.Poll(ctx, func() (bool, error) { return hasStopped(p.Cmd.Process.Pid), nil })
}

func (n native) kill(_ string, p *childproc.Process) error {
	return sendSignal(p.Cmd.Process, sigKill)
}

// stderrOf returns what a command run by Output printed as errors.
func stderrOf(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(exit.Stderr)
	}
	return ""
}
