package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	chunkSize   = 32 << 10

	// queueLength is how many chunks may wait for their delay or a release on
	// one connection; then its upstream is no longer read, as with a full socket
	// buffer.
	queueLength = 1024

	// fine is the end of a delay that is waited for exactly, and cannot be cut
	// short.
	fine = 2 * time.Millisecond
)

// link is one client's connection and the one made for it upstream.
type link struct {
	p      *Proxy
	client net.Conn
	done   chan struct{} // closed by close

	// Guarded by p.mu.
	server net.Conn // nil until dialed
	left   int64    // bytes from upstream that may still pass
	closed bool
}

// chunk is what one read from upstream brought.
type chunk struct {
	data []byte
	due  time.Time // not passed on sooner
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client was gone already
		}
		if l := p.welcome(client); l != nil {
			p.tasks.Go(func() { l.run(ctx) })
		}
	}
}

// welcome makes a link for a new client, or refuses it. One lock for both: after
// Refuse(true) and CloseAll, in this order, nothing is open.
func (p *Proxy) welcome(client net.Conn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.accepted++
	if p.mu.refuse || p.mu.closed {
		_ = client.Close()
		return nil
	}
	l := &link{p: p, client: client, done: make(chan struct{}), left: p.mu.cut}
	p.mu.links[l] = struct{}{}
	return l
}

// run serves the link until either side, or a fault, ends it. Three tasks, so
// that a reply that waits holds up neither the requests nor the clock of the
// replies behind it: one passes requests on, one takes replies in and notes when
// each is due, one (this) gives them out.
func (l *link) run(ctx context.Context) {
	defer l.close()
	d := net.Dialer{Timeout: dialTimeout}
	server, err := d.DialContext(ctx, "tcp", l.p.upstream)
	if err != nil || !l.attach(server) {
		return
	}
	queue := make(chan chunk, queueLength)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		defer l.close()
		l.passRequests(server)
	})
	tasks.Go(func() {
		// Not l.close: what is in the queue is still to be given out.
		defer close(queue)
		l.takeReplies(server, queue)
	})
	l.giveReplies(queue)
	l.close()
	tasks.Wait()
}

// attach reports whether the link is still wanted now that it has a server.
func (l *link) attach(server net.Conn) bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.closed {
		_ = server.Close()
		return false
	}
	l.server = server
	return true
}

func (l *link) close() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	delete(l.p.mu.links, l)
	close(l.done)
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

func (l *link) passRequests(server net.Conn) {
	parser := commandParser{found: l.p.countCommand}
	buf := make([]byte, chunkSize)
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			l.p.countRequest(n)
			parser.feed(buf[:n])
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) takeReplies(server net.Conn, queue chan<- chunk) {
	buf := make([]byte, chunkSize)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			pass, delay, cut := l.arrived(n)
			if pass > 0 {
				c := chunk{data: bytes.Clone(buf[:pass])}
				if delay > 0 {
					c.due = time.Now().Add(delay)
				}
				select {
				case queue <- c:
				case <-l.done:
					return
				}
			}
			if cut {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// arrived decides what becomes of n bytes from upstream: how many of them pass,
// after which delay, and whether the link ends with them.
func (l *link) arrived(n int) (pass int, delay time.Duration, cut bool) {
	m := &l.p.mu
	m.Lock()
	defer m.Unlock()
	m.replies += int64(n)
	pass = int(min(int64(n), l.left))
	cut = pass < n
	if l.left != Never {
		l.left -= int64(pass)
	}
	if m.drop {
		m.dropped += int64(pass)
		pass = 0
	}
	return pass, m.delay, cut
}

func (l *link) giveReplies(queue <-chan chunk) {
	for c := range queue {
		if !l.waitUntil(c.due) || !l.waitOpen() {
			return
		}
		if _, err := l.client.Write(c.data); err != nil {
			return
		}
	}
}

// waitUntil waits for a time; it reports false if the link was closed first.
func (l *link) waitUntil(due time.Time) bool {
	if due.IsZero() {
		return true
	}
	if coarse := time.Until(due) - fine; coarse > 0 {
		timer := time.NewTimer(coarse)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.done:
			return false
		}
	}
	if d := time.Until(due); d > 0 {
		sleep(d)
	}
	return true
}

// waitOpen waits until no hold is on; it reports false if the link was closed
// first. What arrived after HoldReplies returned always finds its hold here.
func (l *link) waitOpen() bool {
	for {
		l.p.mu.Lock()
		holds, open := l.p.mu.holds, l.p.mu.open
		l.p.mu.Unlock()
		if holds == 0 {
			return true
		}
		select {
		case <-open: // but there may be a new hold
		case <-l.done:
			return false
		}
	}
}

func (p *Proxy) countRequest(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.requests += int64(n)
}

func (p *Proxy) countCommand(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.commands[name]++
}
