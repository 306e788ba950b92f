package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

func TestAnswers(t *testing.T) {
	refused := leaselimit.Decision{Class: "default", Limit: quota.PerMinute(3, 3), RetryAfter: 19500 * time.Millisecond}
	degraded := refused
	degraded.Source, degraded.Policy = leaselimit.SourceFallback, leaselimit.FailClosed
	local := degraded
	local.Policy = leaselimit.FailLocal
	never := refused
	never.RetryAfter = leaselimit.Never

	for _, tt := range []struct {
		name   string
		lim    decide
		opts   []httplimit.Option
		status int
		retry  string
		body   string
	}{
		{"refused", always(refused), nil, 429, "20", `{
			"type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title": "Request cannot be satisfied as assigned quota has been exceeded", "status": 429,
			"detail": "The limit \"default\" is used up. Try again in 20 s.", "violated-policies": ["default"]}`},
		{"never", always(never), nil, 429, "", `{
			"type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title": "Request cannot be satisfied as assigned quota has been exceeded", "status": 429,
			"detail": "A request like this can never pass the limit \"default\".", "violated-policies": ["default"]}`},
		{"closed by FailClosed", always(degraded), nil, 503, "20", `{
			"type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
			"title": "Request cannot be satisfied due to temporary server capacity constraints", "status": 503,
			"violated-policies": ["default"]}`},
		{"by FailLocal", always(local), nil, 429, "20", `{
			"type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title": "Request cannot be satisfied as assigned quota has been exceeded", "status": 429,
			"detail": "The limit \"default\" is used up. Try again in 20 s.", "violated-policies": ["default"]}`},
		{"own", always(refused), []httplimit.Option{
			httplimit.WithRefused(func(w http.ResponseWriter, _ *http.Request, d leaselimit.Decision) {
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, `"`+d.Class+`"`)
			}),
		}, 429, "20", `"default"`},
		{"closed", fails(leaselimit.ErrClosed), nil, 503, "", `{"title": "Service Unavailable", "status": 503}`},
		{"cost", fails(leaselimit.ErrInvalidCost), nil, 500, "", `{"title": "Internal Server Error", "status": 500}`},
		{"source", fails(errors.New("db: no route to 10.0.0.7")), nil, 503, "", `{"title": "Service Unavailable", "status": 503}`},
		{"no such tenant", fails(fmt.Errorf("plans: %w", quota.ErrUnknownTenant)), nil, 403, "", `{"title": "Forbidden", "status": 403}`},
		{"own error", fails(errors.New("away")), []httplimit.Option{
			httplimit.WithError(func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, `"`+err.Error()+`"`, http.StatusBadGateway)
			}),
		}, 502, "", `"away"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := append(tt.opts, httplimit.WithLogger(slog.New(slog.DiscardHandler)))
			srv := limit(t, tt.lim, opts...)
			got := get(t, srv)
			assert.Equal(t, tt.status, got.StatusCode)
			assert.Equal(t, tt.retry, got.Header.Get("Retry-After"))
			assert.JSONEq(t, tt.body, got.body)

			head := do(t, srv.Client(), request(t, http.MethodHead, srv.URL, nil))
			assert.Equal(t, tt.status, head.StatusCode)
			assert.Equal(t, got.Header.Get("Ratelimit"), head.Header.Get("Ratelimit"))
			assert.Empty(t, head.body)
		})
	}
}

func fails(err error) decide {
	return func(string, int64) (leaselimit.Decision, error) { return leaselimit.Decision{}, err }
}

func TestNothingIsDoneForWhoIsRefused(t *testing.T) {
	var ran atomic.Int64
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	blocked := limiter(t, quota.Limit{})
	srv := serve(t, httplimit.Middleware(blocked, acme)(h))
	body := &watched{Reader: strings.NewReader(strings.Repeat("x", 1<<20))}
	req := request(t, http.MethodPost, srv.URL, body, "Expect", "100-continue")
	req.ContentLength = 1 << 20
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	defer client.CloseIdleConnections()
	assert.Equal(t, http.StatusTooManyRequests, do(t, client, req).StatusCode)
	assert.Zero(t, ran.Load(), "the handler ran")
	assert.Zero(t, body.reads.Load(), "the server asked for the body")
}

type watched struct {
	io.Reader

	reads atomic.Int64
}

func (w *watched) Read(p []byte) (int, error) {
	w.reads.Add(1)
	return w.Reader.Read(p)
}

func TestCost(t *testing.T) {
	lim := limiter(t, quota.Limit{Capacity: 10})
	srv := limit(t, lim, httplimit.WithCost(func(r *http.Request) int64 {
		if r.Method == http.MethodPost {
			return 4
		}
		return 1
	}))
	left := func(method string) int64 {
		return list(t, do(t, srv.Client(), request(t, method, srv.URL, nil)).Header, "RateLimit")["default"]["r"]
	}
	assert.Equal(t, []int64{6, 5, 1, 0}, []int64{left("POST"), left("GET"), left("POST"), left("GET")})
}

// What nobody waits for is no answer, and no 200 either.
func TestContextIsDone(t *testing.T) {
	h := httplimit.Middleware(limiter(t, quota.PerSecond(1, 1)), acme, httplimit.WithLogger(slog.New(slog.DiscardHandler)))(hello)
	for _, tt := range []struct {
		cause  error
		status int
	}{{context.Canceled, 499}, {context.DeadlineExceeded, 503}} {
		ctx, cancel := context.WithCancel(t.Context())
		if errors.Is(tt.cause, context.DeadlineExceeded) {
			ctx, cancel = context.WithTimeout(t.Context(), -time.Second)
		}
		cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		assert.Equal(t, tt.status, w.Code, "%v", tt.cause)
		assert.Empty(t, w.Header().Get("Retry-After"))
	}

	// A cancellation that is not of the request, such as a source's own, is an error of the limiter.
	srv := limit(t, fails(context.Canceled), httplimit.WithLogger(slog.New(slog.DiscardHandler)))
	assert.Equal(t, http.StatusServiceUnavailable, get(t, srv).StatusCode)
}

func TestShadowLetsThroughAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a minute is left after any number of seconds of the machine's
		cfg := limited(quota.PerMinute(1, 1))
		cfg.Shadow = true
		var log bytes.Buffer
		var shadowed []bool
		base := pipe(t, httplimit.Middleware(newLimiter(t, membucket.New(), cfg), acme,
			httplimit.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
			httplimit.WithObserver(func(_ *http.Request, e httplimit.Event) {
				shadowed = append(shadowed, e.Decision.Shadowed && e.Tenant == "acme")
			}))(hello))
		for range 2 {
			got := getBy(t, base)
			assert.Equal(t, "hello", got.body)
			assert.Empty(t, got.Header.Get("Retry-After"))
			assert.Equal(t, map[string]item{"default": {"r": 0, "t": 60}}, list(t, got.Header, "RateLimit"))
			time.Sleep(time.Millisecond) // the limiter's answers are up to 2 us on the safe side
		}
		assert.Equal(t, []bool{false, true}, shadowed)
		assert.Contains(t, log.String(), "tenant=acme class=default allowed=true degraded=false shadowed=true")
		assert.Equal(t, 1, strings.Count(log.String(), "\n"), "only what is not as it seems is logged")
	})
}

func TestErrorsAreLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := httplimit.Middleware(fails(errors.New("no such plan")), acme,
			httplimit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))(hello)
		for range 30 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			assert.NotContains(t, w.Body.String(), "plan", "clients are not told")
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, 3, strings.Count(log.String(), "no such plan"))
	})
}

const allSets = httplimit.RateLimitDraft11 | httplimit.XRateLimit

// classes are two middlewares over limits of one tenant.
func classes(t *testing.T) (calls, exports func(http.Handler) http.Handler) {
	t.Helper()
	store := membucket.New()
	wide, narrow := limited(quota.PerMinute(60, 100)), limited(quota.PerMinute(2, 2))
	wide.Class, narrow.Class = "calls", "exports"
	return httplimit.Middleware(newLimiter(t, store, wide), acme, httplimit.WithHeaders(allSets)),
		httplimit.Middleware(newLimiter(t, store, narrow), acme, httplimit.WithHeaders(allSets))
}

func TestStackedLimitsTellOfEach(t *testing.T) {
	for name, stack := range map[string]func(calls, exports func(http.Handler) http.Handler) http.Handler{
		"narrow inside": func(calls, exports func(http.Handler) http.Handler) http.Handler { return calls(exports(hello)) },
		"wide inside":   func(calls, exports func(http.Handler) http.Handler) http.Handler { return exports(calls(hello)) },
	} {
		bubble(t, name, func(t *testing.T) {
			calls, exports := classes(t)
			got := getBy(t, pipe(t, stack(calls, exports)))
			assert.Equal(t, map[string]item{"calls": {"q": 100, "w": 100}, "exports": {"q": 2, "w": 60}},
				list(t, got.Header, "RateLimit-Policy"))
			assert.Equal(t, map[string]item{"calls": {"r": 99, "t": 99}, "exports": {"r": 1, "t": 30}},
				list(t, got.Header, "RateLimit"))
			assert.Len(t, got.Header.Values("RateLimit"), 1, "one line")
			for field, want := range map[string]string{"Limit": "2", "Remaining": "1", "Reset": "30"} {
				assert.Equal(t, []string{want}, got.Header.Values("X-RateLimit-"+field), "of the tighter one")
			}
		})
	}
	bubble(t, "the inner one refuses", func(t *testing.T) {
		calls, exports := classes(t)
		base := pipe(t, calls(exports(hello)))
		getBy(t, base)
		getBy(t, base)
		time.Sleep(time.Millisecond) // the limiter's answers are up to 2 us on the safe side
		got := getBy(t, base)
		assert.Equal(t, http.StatusTooManyRequests, got.StatusCode)
		assert.Equal(t, []any{"exports"}, got.problem(t)["violated-policies"])
		assert.Equal(t, "30", got.Header.Get("Retry-After"))
		assert.Equal(t, item{"r": 97, "t": 97}, list(t, got.Header, "RateLimit")["calls"])
		assert.Equal(t, item{"r": 0, "t": 30}, list(t, got.Header, "RateLimit")["exports"])
	})
}

// What another limiter or the application wrote is kept.
func TestOtherFieldsAreKept(t *testing.T) {
	refusal := leaselimit.Decision{Class: "c", Limit: quota.PerMinute(3, 3), RetryAfter: 20 * time.Second}
	never, ages := refusal, refusal
	never.RetryAfter, ages.RetryAfter = leaselimit.Never, leaselimit.Never-1
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, tt := range []struct {
		d            leaselimit.Decision
		before, want string
	}{
		{refusal, "5", "20"},
		{refusal, "60", "60"},
		{refusal, date, date},
		{refusal, "soon", "20"},
		{never, "60", ""},
		{ages, "60", "9223372037"},
	} {
		before := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Ratelimit"] = []string{`"gateway";r=5;t=1`, `"edge";r=7`}
				w.Header().Set("Retry-After", tt.before)
				next.ServeHTTP(w, r)
			})
		}
		got := get(t, serve(t, before(httplimit.Middleware(always(tt.d), acme)(hello))))
		assert.Equal(t, tt.want, got.Header.Get("Retry-After"))
		limits := list(t, got.Header, "RateLimit")
		assert.Len(t, limits, 3)
		assert.Equal(t, item{"r": 5, "t": 1}, limits["gateway"])
	}
}

// A cache in front must not keep what one tenant was refused, nor take the body for another one.
func TestRefusalsAreNotCached(t *testing.T) {
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for field, value := range map[string]string{
				"Cache-Control": "public, max-age=3600", "ETag": `"v1"`, "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
				"Content-Encoding": "gzip", "Content-Length": "5", "Vary": "Origin",
			} {
				w.Header().Set(field, value)
			}
			next.ServeHTTP(w, r)
		})
	}
	for want, lim := range map[int]decide{
		429: always(leaselimit.Decision{Limit: quota.PerMinute(3, 3), RetryAfter: time.Second}),
		503: fails(leaselimit.ErrClosed),
	} {
		discard := httplimit.WithLogger(slog.New(slog.DiscardHandler))
		got := get(t, serve(t, outer(httplimit.Middleware(lim, acme, discard)(hello))))
		assert.Equal(t, want, got.StatusCode)
		got.problem(t)
		assert.Equal(t, "no-store", got.Header.Get("Cache-Control"))
		assert.Equal(t, "Origin", got.Header.Get("Vary"))
		for _, field := range []string{"ETag", "Last-Modified", "Content-Encoding"} {
			assert.Empty(t, got.Header.Get(field))
		}
	}
}

// Whoever refuses is told of in X-RateLimit-*, all of them.
func TestXRateLimitIsOfTheLimitThatRefuses(t *testing.T) {
	outer := leaselimit.Decision{Allowed: true, Class: "a", Limit: quota.PerMinute(6, 10)}
	inner := leaselimit.Decision{Class: "b", Limit: quota.Limit{Capacity: 5}, Remaining: 2, RetryAfter: leaselimit.Never}
	with := httplimit.WithHeaders(httplimit.XRateLimit)
	got := get(t, serve(t, httplimit.Middleware(always(outer), acme, with)(httplimit.Middleware(always(inner), acme, with)(hello))))
	assert.Equal(t, []string{"5"}, got.Header.Values("X-RateLimit-Limit"))
	assert.Equal(t, []string{"2"}, got.Header.Values("X-RateLimit-Remaining"))
	assert.NotContains(t, got.Header, "X-Ratelimit-Reset")
}

func TestHeaderSets(t *testing.T) {
	d := leaselimit.Decision{Allowed: true, Class: "c", Limit: quota.PerMinute(6, 10), Remaining: 4}
	for sets, want := range map[httplimit.HeaderSet]http.Header{
		0:                          {},
		httplimit.RateLimitDraft11: {"Ratelimit-Policy": {`"c";q=10;w=100`}, "Ratelimit": {`"c";r=4;t=40`}},
		httplimit.XRateLimit: {
			"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"4"}, "X-Ratelimit-Reset": {"60"},
		},
		allSets: {
			"Ratelimit-Policy": {`"c";q=10;w=100`}, "Ratelimit": {`"c";r=4;t=40`},
			"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"4"}, "X-Ratelimit-Reset": {"60"},
		},
	} {
		w := httptest.NewRecorder()
		silent := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		httplimit.Middleware(always(d), acme, httplimit.WithHeaders(sets))(silent).
			ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		assert.Equal(t, want, w.Header(), "%b", sets)
	}
}

func TestFieldsOfExtremeLimits(t *testing.T) {
	const most = 999_999_999_999_999 // of a structured field
	for _, tt := range []struct {
		d      leaselimit.Decision
		policy item // nil: no fields
		limit  item
	}{
		{leaselimit.Decision{Allowed: true, Limit: quota.Unlimited, Remaining: 1<<63 - 1}, nil, nil},
		{leaselimit.Decision{Limit: quota.Limit{}, RetryAfter: leaselimit.Never}, item{"q": 0}, item{"r": 0}},
		{leaselimit.Decision{Allowed: true, Limit: quota.Limit{Capacity: 5}, Remaining: 3}, item{"q": 5}, item{"r": 3}},
		{
			leaselimit.Decision{Allowed: true, Limit: quota.PerSecond(1, quota.MaxTokens), Remaining: quota.MaxTokens},
			item{"q": most}, // full after 285 million years
			item{"r": most},
		},
		{
			leaselimit.Decision{Allowed: true, Limit: quota.Limit{Capacity: quota.MaxTokens, Refill: 1, Per: 1<<63 - 1}},
			item{"q": most},
			item{"r": 0, "t": 9_223_372_037},
		},
		{
			leaselimit.Decision{Allowed: true, Limit: quota.PerSecond(quota.MaxTokens, 1), Remaining: 1},
			item{"q": 1, "w": 1},
			item{"r": 1, "t": 1},
		},
		{ // of an Allower that miscounts
			leaselimit.Decision{Allowed: true, Limit: quota.PerMinute(3, 3), Remaining: -7},
			item{"q": 3, "w": 60},
			item{"r": 0, "t": 20},
		},
		{
			leaselimit.Decision{Allowed: true, Limit: quota.PerMinute(3, 3), Remaining: 7},
			item{"q": 3, "w": 60},
			item{"r": 3, "t": 60},
		},
	} {
		for _, class := range []string{"", "a-b_c.D", "ключ \"\\\n"} {
			tt.d.Class = class
			got := get(t, limit(t, always(tt.d)))
			policy, service := list(t, got.Header, "RateLimit-Policy"), list(t, got.Header, "RateLimit")
			if tt.policy == nil {
				assert.Nil(t, policy)
				assert.Nil(t, service)
				continue
			}
			for name := range policy {
				assert.Equal(t, map[string]item{name: tt.policy}, policy)
				assert.Equal(t, map[string]item{name: tt.limit}, service)
			}
		}
	}
}

// The service is told of everything, once for each request.
func TestObserver(t *testing.T) {
	cause := errors.New("no such plan")
	nobody := func(*http.Request) (string, error) { return "", nil }
	refused := leaselimit.Decision{Class: "c", Limit: quota.PerMinute(3, 3), RetryAfter: time.Second}
	for _, tt := range []struct {
		lim    decide
		tenant func(*http.Request) (string, error)
		want   httplimit.Event
	}{
		{always(refused), acme, httplimit.Event{Tenant: "acme", Decision: refused}},
		{fails(cause), acme, httplimit.Event{Tenant: "acme", Err: cause}},
		{fails(cause), nobody, httplimit.Event{Err: httplimit.ErrNoTenant}},
	} {
		var seen []httplimit.Event
		get(t, serve(t, httplimit.Middleware(tt.lim, tt.tenant, httplimit.WithLogger(slog.New(slog.DiscardHandler)),
			httplimit.WithObserver(func(_ *http.Request, e httplimit.Event) { seen = append(seen, e) }))(hello)))
		assert.Equal(t, []httplimit.Event{tt.want}, seen)
	}
}

func TestExemptionsAreTakenBack(t *testing.T) {
	all := func(*http.Request) bool { return true }
	for want, opts := range map[int][]httplimit.Option{
		200: {httplimit.WithExempt(nil), httplimit.WithExempt(all)},
		429: {httplimit.WithExempt(all), httplimit.WithExempt(nil)},
	} {
		assert.Equal(t, want, get(t, limit(t, limiter(t, quota.Limit{}), opts...)).StatusCode)
	}
}

func TestMisuse(t *testing.T) {
	assert.PanicsWithValue(t, "httplimit: lim is nil", func() { httplimit.Middleware(nil, acme) })
	assert.PanicsWithValue(t, "httplimit: tenant is nil", func() { httplimit.Middleware(fails(nil), nil) })
	assert.PanicsWithValue(t, "httplimit: WithRetrySpread is -1ns, must be 0 or more", func() {
		httplimit.Middleware(fails(nil), acme, httplimit.WithRetrySpread(-1))
	})
	for want, opt := range map[string]httplimit.TransportOption{
		"httplimit: WithMaxAttempts is 0, must be 1 or more": httplimit.WithMaxAttempts(0),
		"httplimit: WithMaxWait is -1ns, must be 0 or more":  httplimit.WithMaxWait(-1),
		"httplimit: WithRetry is nil":                        httplimit.WithRetry(nil),
	} {
		assert.PanicsWithValue(t, want, func() { httplimit.NewTransport(nil, opt) })
	}
}
