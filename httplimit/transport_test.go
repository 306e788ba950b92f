package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reply is one answer of a scripted server.
type reply struct {
	status int
	header http.Header
	body   string
}

func busy(status int, retryAfter ...string) reply {
	return reply{status: status, header: http.Header{"Retry-After": retryAfter}, body: "busy"}
}

var ok = reply{status: http.StatusOK, body: "hello"}

// arrival is a request as the server saw it.
type arrival struct {
	at           time.Duration
	method, body string
}

// script is a server in a bubble, which gives one answer after the other, and the last one for ever.
type script struct {
	mu       sync.Mutex
	start    time.Time
	replies  []reply
	arrivals []arrival
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.replies[min(len(s.arrivals), len(s.replies)-1)]
	s.arrivals = append(s.arrivals, arrival{time.Since(s.start), r.Method, string(body)})
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	_, _ = io.WriteString(w, answer.body)
}

// waits are the times between arrivals.
func (s *script) waits() (waits []time.Duration) {
	for i := 1; i < len(s.arrivals); i++ {
		waits = append(waits, s.arrivals[i].at-s.arrivals[i-1].at)
	}
	return waits
}

// polite runs test in a bubble, with a real server and a polite client that are connected by pipes.
func polite(t *testing.T, replies []reply, opts []httplimit.TransportOption, test func(t *testing.T, s *script, c *http.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now(), replies: replies}
		base := pipe(t, s)
		test(t, s, &http.Client{Transport: httplimit.NewTransport(base, opts...)})
	})
}

const url = "http://service.test/"

func TestRetryAfterIsHeeded(t *testing.T) {
	date := func(d time.Duration) string { // the clock of a bubble starts at a whole second
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(http.TimeFormat)
	}
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for value, want := range map[string]time.Duration{
			"1": time.Second, "20": 20 * time.Second, "007": 7 * time.Second, "0": time.Second,
			date(9 * time.Second): 9 * time.Second, date(-time.Hour): time.Second,
			// No advice that could be taken: the answer is the caller's.
			"": 0, "-5": 0, "+5": 0, "1.5": 0, "5s": 0, "soon": 0, " ": 0, "0x10": 0, "１": 0,
			"31": 0, "9223372036": 0, "99999999999999999999999999": 0, date(24 * time.Hour): 0,
		} {
			polite(t, []reply{busy(status, value), ok}, nil, func(t *testing.T, s *script, c *http.Client) {
				got := do(t, c, request(t, http.MethodGet, url, nil))
				if want == 0 {
					assert.Equal(t, status, got.StatusCode, "%q", value)
					assert.Equal(t, "busy", got.body)
					assert.Len(t, s.arrivals, 1)
					return
				}
				assert.Equal(t, "hello", got.body, "%q", value)
				require.Len(t, s.arrivals, 2)
				assert.GreaterOrEqual(t, s.waits()[0], want*110/100, "%q", value)
				assert.LessOrEqual(t, s.waits()[0], want*125/100, "%q", value)
			})
		}
	}
}

func TestTheLongestRetryAfterIsHeeded(t *testing.T) {
	polite(t, []reply{busy(429, "2", "10", "soon", "5"), ok}, nil, func(t *testing.T, s *script, c *http.Client) {
		assert.Equal(t, 200, do(t, c, request(t, http.MethodGet, url, nil)).StatusCode)
		assert.GreaterOrEqual(t, s.waits()[0], 11*time.Second)
	})
}

// A date counts from the server's clock, which may be an hour ahead of ours.
func TestDateOfAServerWhoseClockDiffers(t *testing.T) {
	server := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)
	r := busy(429, server.Add(4*time.Second).Format(http.TimeFormat))
	r.header.Set("Date", server.Format(http.TimeFormat))
	polite(t, []reply{r, ok}, nil, func(t *testing.T, s *script, c *http.Client) {
		assert.Equal(t, 200, do(t, c, request(t, http.MethodGet, url, nil)).StatusCode)
		assert.InDelta(t, 4.7*float64(time.Second), float64(s.waits()[0]), 0.3*float64(time.Second))
	})
}

func TestOtherAnswersAreNotRetried(t *testing.T) {
	for _, status := range []int{200, 202, 301, 400, 401, 413, 500, 502, 504} {
		polite(t, []reply{busy(status, "1"), ok}, nil, func(t *testing.T, s *script, c *http.Client) {
			assert.Equal(t, status, do(t, c, request(t, http.MethodGet, url, nil)).StatusCode)
			assert.Len(t, s.arrivals, 1)
		})
	}
}

func TestAttemptsAndWaitsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		opts  []httplimit.TransportOption
		retry string
		calls int
	}{
		{nil, "1", 4},
		{nil, "12", 3}, // a third wait would be past 30 s
		{[]httplimit.TransportOption{httplimit.WithMaxAttempts(2)}, "1", 2},
		{[]httplimit.TransportOption{httplimit.WithMaxAttempts(1000), httplimit.WithMaxWait(time.Minute)}, "10", 6},
		{[]httplimit.TransportOption{httplimit.WithMaxAttempts(1)}, "1", 1},
		{[]httplimit.TransportOption{httplimit.WithMaxWait(0)}, "1", 1},
	} {
		polite(t, []reply{busy(429, tt.retry)}, tt.opts, func(t *testing.T, s *script, c *http.Client) {
			got := do(t, c, request(t, http.MethodGet, url, nil))
			assert.Equal(t, http.StatusTooManyRequests, got.StatusCode)
			assert.Equal(t, "busy", got.body, "the last answer is whole")
			if tt.calls == 6 { // 4 waits of at most 12.5 s fit, and 5 of 11 s
				assert.Contains(t, []int{5, 6}, len(s.arrivals))
				return
			}
			assert.Len(t, s.arrivals, tt.calls, "%+v", tt)
		})
	}
}

func TestWhatMayBeSentAgain(t *testing.T) {
	always := httplimit.WithRetry(func(*http.Request) bool { return true })
	never := httplimit.WithRetry(func(*http.Request) bool { return false })
	text := func() io.Reader { return strings.NewReader("body") } // net/http knows how to rewind it
	stream := func() io.Reader { return io.MultiReader(text()) }  // and not this
	for _, tt := range []struct {
		method string
		body   func() io.Reader
		header []string
		opts   []httplimit.TransportOption
		again  bool
	}{
		{method: "GET", again: true},
		{method: "HEAD", again: true},
		{method: "OPTIONS", again: true},
		{method: "DELETE", again: true},
		{method: "PUT", body: text, again: true},
		{method: "PUT", body: stream},
		{method: "PUT", body: func() io.Reader { return http.NoBody }, again: true},
		{method: "POST", body: text},
		{method: "PATCH", body: text},
		{method: "POST"},
		{method: "POST", body: text, header: []string{"Idempotency-Key", "7"}, again: true},
		{method: "PATCH", body: text, header: []string{"X-Idempotency-Key", "7"}, again: true},
		{method: "POST", body: stream, header: []string{"Idempotency-Key", "7"}},
		{method: "POST", body: text, opts: []httplimit.TransportOption{always}, again: true},
		{method: "POST", body: stream, opts: []httplimit.TransportOption{always}},
		{method: "GET", opts: []httplimit.TransportOption{never}},
	} {
		polite(t, []reply{busy(429, "1"), busy(503, "1"), ok}, tt.opts, func(t *testing.T, s *script, c *http.Client) {
			var body io.Reader
			if tt.body != nil {
				body = tt.body()
			}
			got := do(t, c, request(t, tt.method, url, body, tt.header...))
			if !tt.again {
				assert.Equal(t, http.StatusTooManyRequests, got.StatusCode, "%s", tt.method)
				assert.Equal(t, "busy", got.body)
				require.Len(t, s.arrivals, 1)
				return
			}
			assert.Equal(t, http.StatusOK, got.StatusCode, "%s", tt.method)
			require.Len(t, s.arrivals, 3)
			for _, a := range s.arrivals {
				assert.Equal(t, s.arrivals[0].body, a.body)
				assert.Equal(t, tt.method, a.method)
			}
		})
	}
}

// A body that cannot be had again: the refusal is returned, unread.
func TestRewindFails(t *testing.T) {
	polite(t, []reply{busy(429, "1"), ok}, nil, func(t *testing.T, s *script, c *http.Client) {
		req := request(t, http.MethodPut, url, strings.NewReader("body"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("file is gone") }
		assert.Equal(t, "busy", do(t, c, req).body)
		assert.Len(t, s.arrivals, 1)
	})
}

func TestDeadlines(t *testing.T) {
	t.Run("sooner than the wait", func(t *testing.T) {
		polite(t, []reply{busy(429, "5"), ok}, nil, func(t *testing.T, s *script, c *http.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			assert.Equal(t, "busy", do(t, c, request(t, http.MethodGet, url, nil).WithContext(ctx)).body)
			assert.Zero(t, time.Since(start), "at once")
		})
	})
	t.Run("of the client", func(t *testing.T) {
		polite(t, []reply{busy(429, "5"), ok}, nil, func(t *testing.T, s *script, c *http.Client) {
			c.Timeout = 5 * time.Second
			assert.Equal(t, "busy", do(t, c, request(t, http.MethodGet, url, nil)).body)
			assert.Len(t, s.arrivals, 1)
		})
	})
	t.Run("later than the wait", func(t *testing.T) {
		polite(t, []reply{busy(429, "5"), ok}, nil, func(t *testing.T, s *script, c *http.Client) {
			c.Timeout = 7 * time.Second
			assert.Equal(t, "hello", do(t, c, request(t, http.MethodGet, url, nil)).body)
		})
	})
	t.Run("cancelled while it waits", func(t *testing.T) {
		polite(t, []reply{busy(429, "5"), ok}, nil, func(t *testing.T, s *script, c *http.Client) {
			cause := errors.New("shutting down")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			body := &closed{Reader: strings.NewReader("body")}
			req := request(t, http.MethodPut, url, strings.NewReader("body")).WithContext(ctx)
			req.GetBody = func() (io.ReadCloser, error) { return body, nil }
			resp, err := c.Do(req) //nolint:bodyclose // there is none
			require.ErrorIs(t, err, cause)
			assert.Nil(t, resp)
			assert.Equal(t, 1, body.n, "the body that was not sent is closed")
			assert.Len(t, s.arrivals, 1)
		})
	})
}

type closed struct {
	io.Reader

	n int
}

func (c *closed) Close() error { c.n++; return nil }

func TestTheCallersRequestIsNotChanged(t *testing.T) {
	polite(t, []reply{busy(429, "1"), ok}, []httplimit.TransportOption{httplimit.WithPacing()},
		func(t *testing.T, s *script, c *http.Client) {
			req := request(t, http.MethodPut, url, strings.NewReader("body"), "X-A", "a")
			before, body := *req, req.Body
			header := req.Header.Clone()
			resp, err := c.Transport.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Len(t, s.arrivals, 2)
			assert.Equal(t, header, req.Header)
			assert.Equal(t, before.URL, req.URL)
			assert.True(t, body == req.Body, "the same body") //nolint:testifylint // not an equal one
		})
}

// Over loopback: the connection of a refused request serves the next attempt, though the refusal has a long body.
func TestConnectionsAreReused(t *testing.T) {
	protocols(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, strings.Repeat("x", 60<<10))
	}), func(t *testing.T, srv *httptest.Server) {
		var reused []bool
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = append(reused, info.Reused) }}
		c := &http.Client{Transport: httplimit.NewTransport(srv.Client().Transport, httplimit.WithMaxAttempts(2))}
		do(t, c, request(t, http.MethodGet, srv.URL, nil).WithContext(httptrace.WithClientTrace(t.Context(), trace)))
		assert.Equal(t, []bool{false, true}, reused)
		c.CloseIdleConnections()
	})
}

// A refusal whose body has no end holds nobody up for longer than a second.
func TestEndlessBodyOfARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		c := &http.Client{Transport: httplimit.NewTransport(pipe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls > 1 {
				return
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})))}
		start := time.Now()
		assert.Equal(t, http.StatusOK, do(t, c, request(t, http.MethodGet, url, nil)).StatusCode)
		assert.Less(t, time.Since(start), 3*time.Second)
	})
}

func TestErrorsOfTheNetworkAreTheCallers(t *testing.T) {
	srv := httptest.NewServer(hello)
	srv.Close()
	c := &http.Client{Transport: httplimit.NewTransport(nil)}
	resp, err := c.Do(request(t, http.MethodGet, srv.URL, nil)) //nolint:bodyclose // there is none
	require.Error(t, err)
	assert.Nil(t, resp)
}

func TestManyGoroutines(t *testing.T) {
	polite(t, []reply{busy(429, "1"), busy(503, "1"), ok}, []httplimit.TransportOption{httplimit.WithPacing()},
		func(t *testing.T, s *script, c *http.Client) {
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					text := fmt.Sprint(i)
					req := request(t, http.MethodPut, url, bytes.NewReader([]byte(text)))
					assert.Equal(t, http.StatusOK, do(t, c, req).StatusCode)
				})
			}
			all.Wait()
			assert.Len(t, s.arrivals, 52)
		})
}
