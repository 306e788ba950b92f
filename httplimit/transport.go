package httplimit

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/leaselimit/leaselimit/internal/pace"
	"github.com/leaselimit/leaselimit/internal/patience"
	"github.com/leaselimit/leaselimit/internal/ratefields"
)

// NewTransport returns a polite client on top of base, or of http.DefaultTransport if base is nil: it waits and tries again
// where a server says 429 or 503 and how long to wait.
//
// Retry-After is seconds or an HTTP date; less than a second counts as one. What is waited is 10 to 25 % more, at random, so
// that clients which were refused together do not come back together. A request is tried again only if its method is
// idempotent or it has an Idempotency-Key (see [WithRetry]), and it has no body or one that GetBody can rewind. Bodies of
// answers that are not returned are drained and closed, so connections are reused.
//
// In every other case the answer is returned as it came: where Retry-After is missing (as with a request that can never pass)
// or makes no sense, where the wait would go past the request's deadline or [WithMaxWait], or after [WithMaxAttempts]. If the
// request's context ends during a wait, its error is returned.
//
// The transport is safe for concurrent use and never changes a request. Its CloseIdleConnections is base's.
//
// It panics if an option is out of its bounds.
func NewTransport(base http.RoundTripper, opts ...TransportOption) http.RoundTripper {
	t := &transport{base: base, patience: patience.Default(), retry: idempotent}
	if base == nil {
		t.base = http.DefaultTransport
	}
	for _, set := range opts {
		set(t)
	}
	t.patience.Check("httplimit")
	if t.retry == nil {
		panic("httplimit: WithRetry is nil")
	}
	return t
}

// A TransportOption changes what the transport of [NewTransport] does.
type TransportOption func(*transport)

// WithMaxAttempts sets how often a request is sent at most, the first time included: 1 or more, default 4.
func WithMaxAttempts(n int) TransportOption { return func(t *transport) { t.patience.Attempts = n } }

// WithMaxWait sets how long a request is held back at most, over all attempts: 0 or more, default 30s. An answer that asks for more
// is returned at once.
func WithMaxWait(d time.Duration) TransportOption { return func(t *transport) { t.patience.Wait = d } }

// WithRetry says which requests may be sent again. By default those of an idempotent method (GET, HEAD, OPTIONS, TRACE, PUT,
// DELETE; RFC 9110, section 9.2.2), or with a field Idempotency-Key or X-Idempotency-Key, as with net/http. A POST that this
// package's middleware refused has done nothing and may be sent again; other servers do not all promise that.
func WithRetry(retry func(*http.Request) bool) TransportOption {
	return func(t *transport) { t.retry = retry }
}

// WithPacing holds requests back ahead of a refusal, from the RateLimit fields of the last answer of the same origin. From the
// moment when half of a quota is used up, requests leave one by one, as far apart as t/r says, and 10 to 25 % more; of several
// limits, the slowest rules. What an answer says is heeded until another one says otherwise, or more than half of the quota is there
// again. It never fails a request: one that would be held back past its deadline, or for longer than [WithMaxWait], is sent at once.
// The end of its context ends it.
//
// Every request is paced, whether it may be sent again or not. Use one transport for each identity, as limits are. Limits of an
// origin are told apart by name and partition (pk), but which of them a request counts against is known only after the fact: it is
// taken to be those of the answer before.
func WithPacing() TransportOption { return func(t *transport) { t.pace = new(pace.Pacer) } }

type transport struct {
	base     http.RoundTripper
	patience patience.Patience // of each request
	retry    func(*http.Request) bool
	pace     *pace.Pacer // nil if not asked for
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	left := t.patience
	send := req
	for {
		held, ok := t.pace.Hold(req.Context(), origin(req), "", left.Wait)
		if !ok {
			closeBody(send)
			return nil, context.Cause(req.Context())
		}
		left.Wait -= held
		sent := time.Now()
		resp, err := t.base.RoundTrip(send)
		if err != nil {
			return resp, err
		}
		told, ok := advice(resp)
		t.learn(req, sent, resp, told)
		if !ok || !t.retry(req) {
			return resp, nil
		}
		wait, ok := left.Take(req.Context(), told)
		if !ok {
			return resp, nil
		}
		if send, ok = again(req); !ok {
			return resp, nil
		}
		discard(resp.Body)
		if !patience.Sleep(req.Context(), wait) {
			closeBody(send)
			return nil, context.Cause(req.Context())
		}
	}
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// learn takes note of an answer; one from a cache says nothing about now.
func (t *transport) learn(req *http.Request, sent time.Time, resp *http.Response, told time.Duration) {
	if age := resp.Header.Get("Age"); t.pace == nil || age != "" && age != "0" {
		return
	}
	t.pace.Learn(origin(req), "", sent, told, ratefields.Read(resp.Header[fieldLimit], resp.Header[fieldPolicy]))
}

func origin(req *http.Request) string { return req.URL.Scheme + "://" + req.URL.Host }

// advice is how long to wait before resp's request is sent again, 0 if its answer is not about that.
func advice(resp *http.Response) (time.Duration, bool) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	wait, ok := retryAfter(resp.Header, time.Now())
	if !ok {
		return 0, false
	}
	return max(wait, time.Second), true
}

// again is req once more, with a body of its own.
func again(req *http.Request) (*http.Request, bool) {
	next := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return next, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	next.Body = body
	return next, err == nil
}

func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// The most of a body that is drained for its connection's sake, and for how long. A new connection is cheaper than more.
const (
	drainBytes = 64 << 10
	drainTime  = time.Second
)

func discard(body io.ReadCloser) {
	late := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, body, drainBytes)
	_ = body.Close()
}

// closeBody closes the body of a request that is not sent, as a RoundTripper has to.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
