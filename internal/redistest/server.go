package redistest

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/childproc"
)

const (
	host = "127.0.0.1"

	// portAttempts is how many ports a new server tries. One is nearly always
	// enough, see portPool.
	portAttempts = 5

	// killTimeout bounds the wait for a killed process. Docker needs most of a
	// second, and more on a busy machine.
	killTimeout = 20 * time.Second

	logTailBytes = 2000
)

var errPortInUse = errors.New("port in use")

// Server is a Redis server of a test. Its methods may be called from several
// goroutines, but see the package comment for where failures go.
type Server struct {
	tb       testing.TB // nil for the shared server, which nobody is handed
	engine   engine
	spec     spec
	name     string // unique on the machine: of the container, config and log
	dir      string // holds the config file, the log and what the server writes
	port     int
	addr     string
	password string
	tlsPort  int            // 0: plain text only
	trust    *x509.CertPool // what the clients of tlsPort have to trust

	mu struct {
		sync.Mutex
		proc   *childproc.Process // nil while stopped
		logged int64              // size of the log when proc was started
	}
}

// launch starts a server in a new folder, on a port that nobody uses, and waits
// until it answers. On an error nothing is left behind.
func launch(ctx context.Context, sp spec) (*Server, error) {
	eng := sp.engine
	if eng == nil {
		var err error
		if eng, err = findEngine(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s := &Server{engine: eng, spec: sp, dir: dir, password: sp.password}
	for range portAttempts {
		if err = s.launchOnce(ctx); !errors.Is(err, errPortInUse) {
			break
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("redistest: start: %w", err)
	}
	return s, nil
}

func (s *Server) launchOnce(ctx context.Context) error {
	port, err := childproc.Ports.Take()
	if err != nil {
		return err
	}
	s.name = "redistest-" + randomHex(6)
	s.port = port
	s.addr = net.JoinHostPort(host, strconv.Itoa(port))
	if s.spec.tls {
		err = s.prepareTLS()
	}
	conf := filepath.Join(s.dir, s.confName())
	if err == nil {
		err = os.WriteFile(conf, []byte(s.spec.config(port, s.tlsPort)), 0o644)
	}
	if err == nil {
		err = s.run(ctx)
	}
	if err != nil {
		s.putPorts()
	}
	return err
}

// relaunch starts a stopped server again where it was. A port in use is waited
// for: it may be the source port of somebody's connection for a moment.
func (s *Server) relaunch(ctx context.Context) error {
	return childproc.Poll(ctx, func() (bool, error) {
		err := s.run(ctx)
		return !errors.Is(err, errPortInUse), err
	})
}

// run starts the process and waits until it answers; if it does not, the
// process is gone when run returns.
func (s *Server) run(ctx context.Context) error {
	log, err := os.OpenFile(s.logName(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	size, err := log.Seek(0, 2)
	if err != nil {
		return err
	}

	cmd := s.engine.serve(s.name, s.dir, s.confName(), s.spec.args)
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := childproc.Start(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.mu.proc, s.mu.logged = proc, size
	s.mu.Unlock()

	if err = s.ready(ctx, proc); err != nil {
		tail := s.logTail()
		if strings.Contains(tail, "Address already in use") {
			err = errors.Join(errPortInUse, err)
		}
		return errors.Join(fmt.Errorf("%w\nlog of %s:\n%s", err, s.addr, tail), s.kill())
	}
	return nil
}

// ready waits until this very process answers. That somebody answers on the
// port is not enough: a process that cannot bind ends only after a while, and
// whoever has the port may be a Redis too. The name of the config file tells.
func (s *Server) ready(ctx context.Context, proc *childproc.Process) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a stranger may take the connection and never answer
		select {
		case <-proc.Done:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := childproc.Poll(ctx, func() (bool, error) {
		info, err := ask(ctx, s.addr, s.password, "INFO", "server")
		if err != nil {
			return false, err
		}
		if !strings.Contains(strings.Join(info, ""), s.confName()) {
			return false, errors.New("another server answers")
		}
		// INFO is answered while loading, PING is not.
		_, err = ask(ctx, s.addr, s.password, "PING")
		return err == nil, err
	})
	select {
	case <-proc.Done:
		return fmt.Errorf("ended before it answered: %w", proc.Err)
	default:
		return err
	}
}

// kill ends the process, if there is one, and waits for its end.
func (s *Server) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	proc := s.mu.proc
	if proc == nil {
		return nil
	}
	err := s.engine.kill(s.name, proc)
	select {
	case <-proc.Done:
		s.mu.proc = nil
		return nil
	case <-time.After(killTimeout):
		return errors.Join(errors.New("killed, but does not end"), err)
	}
}

func (s *Server) send(sig signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.proc == nil {
		return errors.New("not running")
	}
	return s.engine.signal(sig, s.name, s.mu.proc)
}

// discard ends the server for good.
func (s *Server) discard() {
	if err := s.kill(); err != nil && s.tb != nil {
		s.tb.Errorf("redistest: stop %s: %v", s.addr, err)
		return
	}
	s.putPorts()
	_ = os.RemoveAll(s.dir)
}

func (s *Server) putPorts() {
	childproc.Ports.Put(s.port)
	if s.tlsPort != 0 {
		childproc.Ports.Put(s.tlsPort)
		s.tlsPort = 0
	}
}

func (s *Server) cli(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"-h", host, "-p", strconv.Itoa(s.port)}, args...)
	cmd := s.engine.cli(ctx, s.name, s.password, args)
	out, err := cmd.Output()
	text := strings.TrimSuffix(string(out), "\n")
	if err != nil {
		return text, fmt.Errorf("redistest: redis-cli %s: %w\n%s%s", strings.Join(args, " "), err, text, stderrOf(err))
	}
	return text, nil
}

func (s *Server) logTail() string {
	s.mu.Lock()
	from := s.mu.logged
	s.mu.Unlock()
	b, err := os.ReadFile(s.logName())
	if err != nil {
		return err.Error()
	}
	b = b[min(from, int64(len(b))):]
	return string(b[max(0, len(b)-logTailBytes):])
}

func (s *Server) confName() string { return s.name + ".conf" }
func (s *Server) logName() string  { return filepath.Join(s.dir, s.name+".log") }

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
