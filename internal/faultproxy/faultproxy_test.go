package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// patience is how long a test waits for what must happen, and silence for what
// must not.
const (
	patience = 20 * time.Second
	silence  = 50 * time.Millisecond
)

// peer is a client's connection through the proxy to an upstream that answers
// every line with the same line.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func connect(t *testing.T, p *Proxy) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &peer{t, conn, bufio.NewReader(conn)}
}

func (c *peer) say(line string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, line+"\n")
	require.NoError(c.t, err)
}

func (c *peer) hears(line string) {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(patience)))
	got, err := c.in.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, line+"\n", got)
}

func (c *peer) hearsNothing() {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(silence)))
	_, err := c.in.ReadByte()
	require.ErrorIs(c.t, err, os.ErrDeadlineExceeded)
}

// isCut reads the rest of the stream, which must end, and returns it.
func (c *peer) isCut() string {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(patience)))
	rest, err := io.ReadAll(c.in)
	require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded, "the connection is still open")
	return string(rest)
}

// echo starts the upstream and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		tasks.Wait() // the proxy, started later, is gone by now
	})
	return l.Addr().String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, time.Millisecond, what)
}

func TestPassesThrough(t *testing.T) {
	t.Parallel()
	p := New(t, echo(t))
	a, b := connect(t, p), connect(t, p)
	for i := range 100 {
		a.say(fmt.Sprint("a", i))
		b.say(fmt.Sprint("b", i))
	}
	for i := range 100 {
		a.hears(fmt.Sprint("a", i))
		b.hears(fmt.Sprint("b", i))
	}
	assert.Equal(t, 2, p.Conns())
	assert.EqualValues(t, 2, p.Accepted())
	assert.EqualValues(t, 2*(10*3+90*4), p.Requests())
	assert.Equal(t, p.Requests(), p.Replies())
	assert.Zero(t, p.Dropped())
	require.NoError(t, a.conn.Close())
	eventually(t, "a closed connection is forgotten", func() bool { return p.Conns() == 1 })
}

func TestDelayReplies(t *testing.T) {
	t.Parallel()
	p := New(t, echo(t))
	c := connect(t, p)
	const delay = 2 * time.Second // so that five of them are told from one on a busy machine
	p.DelayReplies(delay)
	start := time.Now()
	for i := range 5 {
		c.say(fmt.Sprint(i))
		eventually(t, "requests are not delayed", func() bool { return p.Replies() == int64(2*(i+1)) })
	}
	p.DelayReplies(0)
	c.say("5") // arrives with no delay of its own, and keeps its place
	for i := range 6 {
		c.hears(fmt.Sprint(i))
	}
	took := time.Since(start)
	assert.GreaterOrEqual(t, took, delay)
	assert.Less(t, took, 4*delay, "delays run side by side")
}

func TestDropReplies(t *testing.T) {
	t.Parallel()
	p := New(t, echo(t))
	c := connect(t, p)
	p.DropReplies(true)
	c.say("lost")
	eventually(t, "the reply is dropped", func() bool { return p.Dropped() == 5 })
	p.DropReplies(false)
	c.say("kept")
	c.hears("kept")
	assert.Equal(t, 1, p.Conns())
}

func TestHoldReplies(t *testing.T) {
	t.Parallel()
	p := New(t, echo(t))
	a, b := connect(t, p), connect(t, p)
	release, releaseToo := p.HoldReplies(), p.HoldReplies()
	a.say("1")
	a.say("2")
	b.say("3")
	eventually(t, "requests go through", func() bool { return p.Replies() == 6 })
	release()
	release() // counts once
	a.hearsNothing()
	b.hearsNothing()
	releaseToo()
	a.hears("1")
	a.hears("2")
	b.hears("3")

	p.HoldReplies() // and never released
	a.say("4")
	a.hearsNothing()
	p.CloseAll()
	assert.Empty(t, a.isCut(), "what is held goes with the connection")
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	p := New(t, echo(t))
	old := connect(t, p)
	old.say("1")
	old.hears("1")
	p.Refuse(true)
	connect(t, p).isCut()
	assert.EqualValues(t, 2, p.Accepted())
	old.say("2")
	old.hears("2")
	p.CloseAll()
	old.isCut()
	assert.Zero(t, p.Conns())
	p.Refuse(false)
	c := connect(t, p)
	c.say("3")
	c.hears("3")
}

func TestCutAfter(t *testing.T) {
	t.Parallel()
	p := New(t, echo(t))
	open := connect(t, p)
	open.say("1")
	open.hears("1")
	p.CutAfter(3)
	for _, c := range []*peer{open, connect(t, p)} {
		c.say("abcdef")
		assert.Equal(t, "abc", c.isCut(), "on each connection, open or new")
	}
	exact := connect(t, p)
	exact.say("ab")
	exact.hears("ab")
	exact.hearsNothing() // n bytes pass; it is the next that cuts
	exact.say("x")
	assert.Empty(t, exact.isCut())

	p.CutAfter(0)
	c := connect(t, p)
	c.say("abc")
	assert.Empty(t, c.isCut())
	p.CutAfter(Never)
	c = connect(t, p)
	c.say("abcdef")
	c.hears("abcdef")
}

func TestNoUpstream(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	p := New(t, l.Addr().String())
	assert.Empty(t, connect(t, p).isCut())
}

// TestUpstreamEnds: replies that wait when the upstream closes are still given
// out, and then the client is told.
func TestUpstreamEnds(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := New(t, l.Addr().String())
	p.DelayReplies(silence)
	c := connect(t, p)
	conn, err := l.Accept()
	require.NoError(t, err)
	_, err = io.WriteString(conn, "bye\n")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	assert.Equal(t, "bye\n", c.isCut())
}

// TestLostReply is what the proxy is for: a script that was run though its
// client never learns of it.
func TestLostReply(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := New(t, s.Addr())
	c := s.Client(t, func(o *redis.Options) {
		o.Addr, o.MaxRetries, o.ContextTimeoutEnabled = p.Addr(), -1, true
	})
	script := redis.NewScript("return redis.call('INCR', KEYS[1])")
	require.NoError(t, script.Load(t.Context(), c).Err()) // and a connection is idle

	// lose runs the script with its reply lost, and returns when the upstream's
	// reply is known to have come.
	lose := func(fault func()) {
		require.NoError(t, c.Ping(t.Context()).Err())
		before := p.Replies()
		fault()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // long enough for it to be sent on a busy machine
		defer cancel()
		require.Error(t, script.EvalSha(ctx, c, []string{"k"}).Err())
		eventually(t, "the script was run", func() bool { return p.Replies() > before })
	}
	lose(func() { p.DropReplies(true) })
	p.DropReplies(false)
	assert.Equal(t, 1, p.Commands("evalsha"))
	assert.Equal(t, "1", s.CLI(t, "GET", "k"))

	lose(func() { p.CutAfter(0) })
	p.CutAfter(Never)
	assert.Equal(t, 2, p.Commands("evalsha"))
	assert.Equal(t, "2", s.CLI(t, "GET", "k"))

	assert.Equal(t, 1, p.Commands("SCRIPT"))
	assert.Zero(t, p.Commands("GET"), "of redis-cli, which does not pass here")
}

// TestManyAtOnce switches every fault while clients come and go: for -race, and
// for tasks that do not end.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	p := New(t, echo(t))
	stop := make(chan struct{})
	var clients, faults sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 200 {
				if err := talk(p.Addr()); err != nil && !isNetwork(err) {
					t.Error(err)
				}
			}
		})
	}
	for _, fault := range []func(on bool){
		func(on bool) {
			if on {
				p.DelayReplies(time.Millisecond)
			} else {
				p.DelayReplies(0)
			}
		},
		p.DropReplies,
		p.Refuse,
		func(on bool) {
			if on {
				p.CutAfter(2)
			} else {
				p.CutAfter(Never)
			}
		},
		func(bool) { p.HoldReplies()() },
		func(on bool) {
			if on {
				p.CloseAll()
			}
			_ = p.Conns() + p.Commands("x")
		},
	} {
		faults.Go(func() {
			for on := true; ; on = !on {
				fault(on)
				select {
				case <-stop:
					fault(false)
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	faults.Wait()
	c := connect(t, p)
	c.say("well again")
	c.hears("well again")
}

// talk sends a line and wants it back, or nothing.
func talk(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := io.WriteString(conn, "ping\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && line != "ping\n" {
		return fmt.Errorf("heard %q", line)
	}
	return err
}

func isNetwork(err error) bool {
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, io.EOF)
}
