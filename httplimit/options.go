package httplimit

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/ratefields"
)

// An Option changes what [Middleware] does.
type Option func(*options)

type options struct {
	cost    func(*http.Request) int64
	exempt  []func(*http.Request) bool
	headers HeaderSet
	refused func(http.ResponseWriter, *http.Request, leaselimit.Decision)
	failed  func(http.ResponseWriter, *http.Request, error)
	observe func(*http.Request, Event)
	logger  *slog.Logger
	spread  time.Duration // of Retry-After
}

func newOptions(opts []Option) options {
	o := options{headers: RateLimitDraft11}
	for _, set := range opts {
		set(&o)
	}
	ratefields.CheckSpread("httplimit", o.spread)
	if o.refused == nil {
		o.refused = answerRefused
	}
	if o.failed == nil {
		o.failed = answerError
	}
	return o
}

// WithCost has each request cost what cost says, in tokens; default 1. It is called before the body is read and must not read
// it. A cost below 1 is a fault of the service and answered with 500: let requests that cost nothing pass by [WithExempt].
func WithCost(cost func(*http.Request) int64) Option { return func(o *options) { o.cost = cost } }

// WithExempt lets requests pass that exempt reports true for, such as health checks: nothing is asked and nothing is spent,
// and they need no tenant. Given several times, each may exempt; nil takes back those before it. Routes that the middleware does
// not wrap need none.
func WithExempt(exempt func(*http.Request) bool) Option {
	return func(o *options) {
		if exempt == nil {
			o.exempt = nil
			return
		}
		o.exempt = append(o.exempt, exempt)
	}
}

// WithHeaders sets which header fields responses carry; default [RateLimitDraft11]. Sets are combined by |, and 0 is none.
// Retry-After of a refusal is set always.
func WithHeaders(sets HeaderSet) Option { return func(o *options) { o.headers = sets } }

// WithRetrySpread has each refused client told to wait for up to most longer, at random and never less than it has to; default
// 0, which is exact. Retry-After counts whole seconds, so that a thousand clients which are refused together are told the same one, and
// come back within it. A spread of as many seconds as a limit takes to admit them brings them back as they can be served. It holds for
// Retry-After and for t of the RateLimit field; observers see the decision as it was.
func WithRetrySpread(most time.Duration) Option { return func(o *options) { o.spread = most } }

// WithRefused has answer write the response to refused requests, in place of 429 (503 if leaselimit.FailClosed refused) and a
// body of application/problem+json. Header fields are set by then, Retry-After among them.
func WithRefused(answer func(w http.ResponseWriter, r *http.Request, d leaselimit.Decision)) Option {
	return func(o *options) { o.refused = answer }
}

// WithError has answer write the response to requests on which nothing was decided: err matches [ErrNoTenant] (by default
// 401), quota.ErrUnknownTenant (403), leaselimit.ErrInvalidCost (500), or is another error of the limiter (503). It is not called
// for requests whose client has gone. A 401 by default has no WWW-Authenticate field but one that was set before, as the middleware does not know the
// scheme.
func WithError(answer func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return func(o *options) { o.failed = answer }
}

// An Event is what happened to one request.
type Event struct {
	Tenant string // "" if there is none
	// Decision is what was decided. Look at Shadowed and Degraded: clients are told of neither.
	Decision leaselimit.Decision
	// Err is why nothing was decided; Decision is then the zero Decision.
	Err error
}

// WithObserver calls observe for every request that is not exempt, after it was decided and before it is answered or goes on. It is
// on the path of the request, so it has to be quick.
func WithObserver(observe func(*http.Request, Event)) Option {
	return func(o *options) { o.observe = observe }
}

// WithLogger sets where the middleware logs; default slog.Default(). Errors of the limiter are warnings, at most one a second.
// Degraded and shadowed decisions, and requests without a tenant, are lines of level debug.
func WithLogger(logger *slog.Logger) Option { return func(o *options) { o.logger = logger } }
