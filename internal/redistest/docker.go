package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit/internal/childproc"
)

const (
	dockerTimeout = 20 * time.Second
	pullTimeout   = 5 * time.Minute
)

// docker runs the programs of an image. Servers run in the foreground of a
// "docker run", whose end is the server's end.
type docker struct {
	path, image string
	label       string // tells the containers of this process, for the reaper
	user        string // uid:gid, or "" where there is no such thing

	// lifeline is the reaper's input. It has to stay reachable: a file that is
	// collected is closed.
	lifeline *os.File
}

func dockerImage() string {
	if image := os.Getenv("LEASELIMIT_REDIS_IMAGE"); image != "" {
		return image
	}
	return "redis:7.4"
}

// findDocker returns an engine whose image is here, or says what is missing.
func findDocker() (engine, error) {
	path, err := exec.LookPath("docker")
	if err != nil {
		return nil, err
	}
	d := &docker{path: path, image: dockerImage(), label: "redistest=" + randomHex(8)}
	if os.Getuid() >= 0 {
		// What a server writes must be ours to remove.
		d.user = strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid())
	}
	if _, err := d.docker(dockerTimeout, "info"); err != nil {
		return nil, err
	}
	if _, err := d.docker(dockerTimeout, "image", "inspect", d.image); err != nil {
		if _, err := d.docker(pullTimeout, "pull", d.image); err != nil {
			return nil, err
		}
	}
	if err := d.startReaper(); err != nil {
		return nil, err
	}
	return d, nil
}

// docker runs a docker command that is expected to end.
func (d *docker) docker(timeout time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, d.path, args...).Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w %s", args[0], err, strings.TrimSpace(stderrOf(err)))
	}
	return strings.TrimSpace(string(out)), nil
}

func (d *docker) serve(name, dir, conf string, args []string) *exec.Cmd {
	run := []string{
		"run", "--rm", "--network", "host", "--name", name, "--label", d.label,
		"--volume", dir + ":/data:z", "--workdir", "/data",
		// Not the image's own entry point: it changes user and owner.
		"--entrypoint", "redis-server",
	}
	if d.user != "" {
		run = append(run, "--user", d.user)
	}
	run = append(run, d.image, conf)
	return exec.CommandContext(context.Background(), d.path, append(run, args...)...)
}

func (d *docker) cli(ctx context.Context, name, password string, args []string) *exec.Cmd {
	run := []string{"exec"}
	if password != "" {
		run = append(run, "--env", authEnv+password)
	}
	run = append(run, name, "redis-cli")
	return exec.CommandContext(ctx, d.path, append(run, args...)...)
}

// signal uses docker kill for SIGSTOP too: a container paused by docker pause
// cannot be killed.
func (d *docker) signal(sig signal, name string, _ *childproc.Process) error {
	_, err := d.docker(dockerTimeout, "kill", "--signal", string(sig), name)
	return err
}

func (d *docker) kill(name string, p *childproc.Process) error {
	err := d.signal(sigKill, name, p)
	select {
	case <-p.Done: // --rm was done, too
		return nil
	case <-time.After(killTimeout / 2):
	}
	// No container yet, or a client that misses its end.
	_, rmErr := d.docker(dockerTimeout, "rm", "--force", name)
	return errors.Join(err, rmErr, sendSignal(p.Cmd.Process, sigKill))
}

// reap waits for the end of its input, then removes every container with the
// label $2; twice, for one that was being created meanwhile.
const reap = `trap '' HUP INT TERM
read -r _
for wait in 1 0; do
	ids=$("$1" ps --all --quiet --filter "label=$2") && [ -n "$ids" ] && "$1" rm --force $ids
	sleep $wait
done`

// startReaper starts a shell that outlives this process just long enough to
// remove its containers: killing "docker run" does not end the container, and
// nobody tells the Docker engine that the test is gone. The shell notices
// because this process holds the only write end of its input. In a run that
// ends well there is nothing left for it to do.
func (d *docker) startReaper() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	// Its output goes nowhere: go test waits for whoever holds the test's own.
	cmd := exec.CommandContext(context.Background(), "sh", "-c", reap, "sh", d.path, d.label)
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return err
	}
	d.lifeline = w
	return nil
}
