package httplimit_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

// pipe serves h in a bubble of testing/synctest, where no socket may be waited for, and returns a transport to it.
func pipe(t testing.TB, h http.Handler) *http.Transport {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h} //nolint:gosec // of a test
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.ErrorIs(t, srv.Serve(l), http.ErrServerClosed)
	}()
	base := &http.Transport{DialContext: l.dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		assert.NoError(t, srv.Close())
		<-ended
	})
	return base
}

// bubble runs a subtest in a bubble of testing/synctest.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// getBy asks for url over a transport that pipe has made.
func getBy(t testing.TB, base http.RoundTripper) answer {
	t.Helper()
	return do(t, &http.Client{Transport: base}, request(t, http.MethodGet, url, nil))
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return nil, errors.New("closed")
	}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	close(l.done)
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
