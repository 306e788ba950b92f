package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leaselimit/leaselimit/internal/childproc"
)

// server is a kind of server, and the one of this process.
type server struct {
	name   string
	driver string
	env    string // names a running server
	drop   string // what DROP DATABASE needs beside the name
	quit   syscall.Signal

	// native returns the commands that make the server's files and run it, or an error if this machine has no such programs.
	native func(dir string, port int) (create, serve *exec.Cmd, err error)
	// container returns the command that does both in Docker, in the foreground.
	container func(docker, name string, port int) *exec.Cmd
	// dsn is the server's address for its first user, inDatabase the same with a database.
	dsn        func(port int) string
	inDatabase func(dsn, database string) (string, error)

	mu struct {
		sync.Mutex
		asked bool // address or err is known
		addr  string
		err   error

		proc      *childproc.Process
		dir       string
		port      int
		container []string // the command that ends it
	}
}

func (s *server) start() (dsn string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.asked {
		s.mu.asked = true
		if s.mu.addr = os.Getenv(s.env); s.mu.addr == "" {
			s.mu.err = s.launchLocked()
		}
	}
	return s.mu.addr, s.mu.err
}

func (s *server) launchLocked() (err error) {
	defer func() {
		if err != nil {
			s.discardLocked()
		}
	}()
	if s.mu.port, err = childproc.Ports.Take(); err != nil {
		return err
	}
	if s.mu.dir, err = os.MkdirTemp("", "dbtest-"); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.mu.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	serve, err := s.createLocked(log)
	if err != nil {
		return err
	}
	serve.Stdout, serve.Stderr = log, log
	if s.mu.proc, err = childproc.Start(serve); err != nil {
		return err
	}
	s.mu.addr = s.dsn(s.mu.port)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err = childproc.Poll(ctx, func() (bool, error) {
		select {
		case <-s.mu.proc.Done:
			return true, fmt.Errorf("ended before it answered: %w", s.mu.proc.Err)
		default:
		}
		err := s.exec(s.mu.addr, "SELECT 1")
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, tail(log.Name()))
	}
	return nil
}

// createLocked makes the files of a server and returns the command that runs it.
func (s *server) createLocked(log *os.File) (serve *exec.Cmd, err error) {
	create, serve, notHere := s.native(s.mu.dir, s.mu.port)
	if notHere == nil {
		if err := unprivileged(s.mu.dir, create, serve); err != nil {
			return nil, err
		}
		create.Stdout, create.Stderr = log, log
		if err := create.Run(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", create, err, tail(log.Name()))
		}
		return serve, nil
	}
	docker, err := exec.LookPath("docker")
	if err == nil {
		err = exec.CommandContext(context.Background(), docker, "info").Run()
	}
	if err != nil {
		return nil, fmt.Errorf("no server to test with: install its programs (internal/dbtest/provision.sh does on Debian), "+
			"start Docker, or set %s to a running one. Tried: %w", s.env, errors.Join(notHere, err))
	}
	name := filepath.Base(s.mu.dir)
	s.mu.container = []string{docker, "rm", "--force", "--volumes", name}
	return s.container(docker, name, s.mu.port), nil
}

// stop ends the server; a later test would start another.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discardLocked()
	s.mu.asked = false
}

// stopTimeout is how long a server may take to end of its own accord, which frees what a killed one leaves in the kernel.
const stopTimeout = 10 * time.Second

func (s *server) discardLocked() {
	if len(s.mu.container) > 0 {
		_ = exec.CommandContext(context.Background(), s.mu.container[0], s.mu.container[1:]...).Run()
	}
	if p := s.mu.proc; p != nil {
		_ = p.Cmd.Process.Signal(s.quit)
		select {
		case <-p.Done:
		case <-time.After(stopTimeout):
			_ = p.Cmd.Process.Kill()
			<-p.Done
		}
	}
	if s.mu.dir != "" {
		_ = os.RemoveAll(s.mu.dir)
	}
	if s.mu.port != 0 {
		childproc.Ports.Put(s.mu.port)
	}
	s.mu.proc, s.mu.dir, s.mu.port, s.mu.container = nil, "", 0, nil
}

const tailBytes = 4000

func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-tailBytes):])
}

// look finds a program on PATH or else at the last of the places that match the patterns.
func look(name string, patterns ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(strings.ReplaceAll(pattern, "NAME", name)); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", err
}

func command(path string, args ...string) *exec.Cmd {
	// It lives until it is told to end, not until a context ends.
	return exec.CommandContext(context.Background(), path, args...)
}
