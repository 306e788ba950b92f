// Package faultproxy is a TCP proxy that misbehaves on demand, to stand between
// a client and a Redis in tests. It sees the network that a client would see:
// late replies, lost replies, cut and refused connections. Faults of the server
// itself (frozen, dead, loading) are better had from a real one, see redistest.
//
// What it does not do: it drops and delays bytes as they come, so that a reply
// may be cut in the middle, as on a real network; and connections that a pool
// opens meanwhile meet the same faults in their handshake. A test of a lost
// reply therefore needs an idle connection in the pool before the fault is
// switched on, or it proves only that nobody could connect.
package faultproxy

import (
	"context"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Never is the argument of CutAfter that cuts no connection.
const Never int64 = math.MaxInt64

// Proxy passes the connections it accepts on to one upstream address. All its
// methods may be called at any time from any goroutine. Faults add up; each is
// in force from the moment the method returns until it is switched off.
type Proxy struct {
	upstream string
	listener net.Listener
	tasks    sync.WaitGroup // the accept loop and every link

	mu struct {
		sync.Mutex
		closed bool
		links  map[*link]struct{} // open connections

		delay  time.Duration
		drop   bool
		refuse bool
		cut    int64         // what a new link may still pass from upstream
		holds  int           // HoldReplies not yet released
		open   chan struct{} // closed while holds is 0

		accepted, requests, replies, dropped int64
		commands                             map[string]int
	}
}

// New starts a proxy on a free loopback port. It ends, with all its
// connections, when the test does. The upstream need not be there yet: each
// connection dials it anew.
func New(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("faultproxy: %v", err)
	}
	p := &Proxy{upstream: upstream, listener: l}
	p.mu.links = map[*link]struct{}{}
	p.mu.commands = map[string]int{}
	p.mu.cut = Never
	p.mu.open = make(chan struct{})
	close(p.mu.open)

	ctx, cancel := context.WithCancel(context.Background())
	p.tasks.Go(func() { p.accept(ctx) })
	tb.Cleanup(func() {
		p.mu.Lock()
		p.mu.closed = true
		p.mu.Unlock()
		cancel()
		_ = l.Close()
		p.CloseAll()
		p.tasks.Wait()
	})
	return p
}

// Addr returns the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// DelayReplies holds every chunk of bytes that arrives from upstream for d; 0
// ends it. Chunks of a connection keep their order and wait side by side, not
// one after another. A chunk keeps the delay it arrived under. Requests are not
// delayed.
func (p *Proxy) DelayReplies(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.delay = d
}

// DropReplies swallows what arrives from upstream while it is on; connections
// stay open and requests go through. See Dropped for when that has happened.
func (p *Proxy) DropReplies(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.drop = on
}

// HoldReplies holds back what arrives from upstream until release is called;
// with several holds, the last release counts. Releasing twice does nothing
// more. Requests go through.
func (p *Proxy) HoldReplies() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.holds == 0 {
		p.mu.open = make(chan struct{})
	}
	p.mu.holds++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.holds--
		if p.mu.holds == 0 {
			close(p.mu.open)
		}
	})
}

// Refuse closes new connections at once while it is on. Open ones live on, see
// CloseAll.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.refuse = on
}

// CloseAll cuts all open connections now, with what they hold. New ones are
// welcome.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.mu.links))
	for l := range p.mu.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.close()
	}
}

// CutAfter lets n more bytes from upstream pass on each connection, open or new,
// and cuts it when the next byte arrives. With 0 a request is carried out and its
// connection breaks in place of the reply. Never ends it.
func (p *Proxy) CutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.cut = n
	for l := range p.mu.links {
		l.left = n
	}
}

// Conns returns how many connections are open.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.links)
}

// Accepted returns how many connections clients have made, refused ones
// included.
func (p *Proxy) Accepted() int64 { return p.count(&p.mu.accepted) }

// Requests returns how many bytes clients have sent.
func (p *Proxy) Requests() int64 { return p.count(&p.mu.requests) }

// Replies returns how many bytes have arrived from upstream, whatever became of
// them.
func (p *Proxy) Replies() int64 { return p.count(&p.mu.replies) }

// Dropped returns how many of the bytes in Replies DropReplies has swallowed.
func (p *Proxy) Dropped() int64 { return p.count(&p.mu.dropped) }

// Commands returns how many commands of this name, in any case, clients have
// sent in full. They are counted before they are passed on: whoever has a reply
// finds its command counted.
func (p *Proxy) Commands(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.commands[strings.ToUpper(name)]
}

func (p *Proxy) count(n *int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *n
}
