package httplimit_test

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // what a websocket handshake is made of
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// protocols runs test over HTTP/1.1 and HTTP/2, with a real server and a real client.
func protocols(t *testing.T, h http.Handler, test func(t *testing.T, srv *httptest.Server)) {
	t.Helper()
	t.Run("HTTP/1.1", func(t *testing.T) { test(t, serve(t, h)) })
	t.Run("HTTP/2", func(t *testing.T) {
		srv := httptest.NewUnstartedServer(h)
		srv.EnableHTTP2 = true
		srv.StartTLS()
		t.Cleanup(srv.Close)
		test(t, srv)
	})
}

func TestBothProtocols(t *testing.T) {
	lim := limiter(t, quota.Limit{Capacity: 2})
	protocols(t, httplimit.Middleware(lim, acme)(hello), func(t *testing.T, srv *httptest.Server) {
		got := get(t, srv)
		assert.Equal(t, strings.HasSuffix(t.Name(), "2"), got.ProtoMajor == 2, got.Proto)
		assert.Equal(t, http.StatusOK, got.StatusCode)
		assert.Len(t, list(t, got.Header, "RateLimit"), 1)
	})
	protocols(t, httplimit.Middleware(lim, acme)(hello), func(t *testing.T, srv *httptest.Server) {
		got := get(t, srv)
		assert.Equal(t, http.StatusTooManyRequests, got.StatusCode)
		assert.Equal(t, 429.0, got.problem(t)["status"])
	})
}

// The handler has the ResponseWriter that the server made, and not one that stands for it.
func TestResponseWriterIsHandedOn(t *testing.T) {
	var outer, inner http.ResponseWriter
	h := httplimit.Middleware(limiter(t, quota.Limit{Capacity: 2}), acme)(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { inner = w }))
	protocols(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer = w
		h.ServeHTTP(w, r)
	}), func(t *testing.T, srv *httptest.Server) {
		get(t, srv)
		assert.Same(t, outer, inner)
		if srv.TLS == nil {
			assert.Implements(t, (*io.ReaderFrom)(nil), inner)
			assert.Implements(t, (*http.Hijacker)(nil), inner)
		}
		assert.Implements(t, (*http.Flusher)(nil), inner)
	})
}

// Each event arrives before the next one is made.
func TestServerSentEvents(t *testing.T) {
	next := make(chan struct{})
	h := httplimit.Middleware(limiter(t, quota.Limit{Capacity: 2}), acme)(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				if !assert.NoError(t, http.NewResponseController(w).Flush()) {
					return
				}
				<-next
			}
		}))
	protocols(t, h, func(t *testing.T, srv *httptest.Server) {
		resp, err := srv.Client().Do(request(t, http.MethodGet, srv.URL, nil))
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Len(t, list(t, resp.Header, "RateLimit"), 1)
		events := bufio.NewReader(resp.Body)
		for i := range 3 {
			line, err := events.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("data: %d\n", i), line)
			_, err = events.ReadString('\n')
			require.NoError(t, err)
			next <- struct{}{}
		}
	})
}

func TestStreamWithTrailers(t *testing.T) {
	h := httplimit.Middleware(limiter(t, quota.Limit{Capacity: 2}), acme)(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Bytes")
			assert.NoError(t, http.NewResponseController(w).EnableFullDuplex())
			n, err := io.Copy(w, r.Body)
			assert.NoError(t, err)
			w.Header().Set("X-Bytes", fmt.Sprint(n))
			assert.Equal(t, "yes", r.Trailer.Get("X-Sent"))
		}))
	protocols(t, h, func(t *testing.T, srv *httptest.Server) {
		const size = 1 << 20
		req := request(t, http.MethodPost, srv.URL, io.LimitReader(zeros{}, size))
		req.Trailer = http.Header{"X-Sent": {"yes"}}
		got := do(t, srv.Client(), req)
		assert.Equal(t, size, len(got.body)) //nolint:testifylint // Len would print the body
		assert.Equal(t, fmt.Sprint(size), got.Trailer.Get("X-Bytes"))
		for name := range got.Trailer {
			assert.NotContains(t, name, "Ratelimit", "never in trailers, says the draft")
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// The handshake of RFC 6455, section 4.2.2, then an echo over the hijacked connection.
func TestWebsocketUpgrade(t *testing.T) {
	lim := limiter(t, quota.Limit{Capacity: 1})
	srv := serve(t, httplimit.Middleware(lim, acme)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see above
		conn, rw, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
		assert.NoError(t, rw.Flush())
		_, _ = io.Copy(conn, io.LimitReader(rw, 4))
	})))
	dial := func() (net.Conn, *http.Response) {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		req := request(t, http.MethodGet, srv.URL, nil, "Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		require.NoError(t, req.Write(conn))
		resp, err := http.ReadResponse(bufio.NewReader(conn), req)
		require.NoError(t, err)
		return conn, resp
	}
	conn, resp := dial()
	defer resp.Body.Close()
	assert.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	assert.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", resp.Header.Get("Sec-WebSocket-Accept"), "of the RFC's example")
	_, err := conn.Write([]byte("ping"))
	require.NoError(t, err)
	echo := make([]byte, 4)
	_, err = io.ReadFull(conn, echo)
	require.NoError(t, err)
	assert.Equal(t, "ping", string(echo))

	_, resp = dial()
	defer resp.Body.Close()
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "an upgrade is refused as any request")
}

func TestCurl(t *testing.T) {
	path, err := exec.LookPath("curl")
	require.NoError(t, err, "this test needs curl: apt-get install curl")
	lim := limiter(t, quota.Limit{Capacity: 2})
	protocols(t, httplimit.Middleware(lim, acme)(hello), func(t *testing.T, srv *httptest.Server) {
		curl := func(args ...string) string {
			out, err := exec.CommandContext(t.Context(), path, append([]string{"-sSik", "-m", "60", srv.URL}, args...)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			return strings.ToLower(strings.ReplaceAll(string(out), "\r", ""))
		}
		got := curl("--http2")
		if srv.TLS != nil {
			assert.Contains(t, got, "http/2 200")
			assert.Contains(t, got, "\nratelimit: \"default\";r=0\n")
			got = curl("--http2")
			assert.Contains(t, got, "http/2 429")
			assert.Contains(t, got, "\ncontent-type: application/problem+json\n")
			return
		}
		assert.Contains(t, got, "http/1.1 200 ok")
		assert.Contains(t, got, "\nratelimit-policy: \"default\";q=2\n")
	})

	// curl's own retries heed Retry-After.
	var calls int
	answers := []leaselimit.Decision{{Limit: quota.PerSecond(1, 1), RetryAfter: 1}, {Allowed: true, Limit: quota.PerSecond(1, 1)}}
	srv := limit(t, decide(func(string, int64) (leaselimit.Decision, error) {
		calls++
		return answers[calls-1], nil
	}))
	out, err := exec.CommandContext(t.Context(), path, "-sS", "-m", "60", "--retry", "1", srv.URL).Output()
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(out), "hello"), "%s", out)
	assert.Equal(t, 2, calls)
}
