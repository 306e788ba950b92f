package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/ratefields"
	"google.golang.org/grpc/status"
)

// An Allower decides. A [*leaselimit.Limiter] is one.
type Allower interface {
	AllowN(ctx context.Context, tenant string, cost int64) (leaselimit.Decision, error)
}

// ErrNoTenant is matched (errors.Is) by the error of a call whose tenant is not known.
var ErrNoTenant = errors.New("grpclimit: no tenant")

// An Event is what happened to one charge: a unary call, a stream, or a message of a stream.
type Event struct {
	Tenant     string // "" if there is none
	FullMethod string
	// Decision is what was decided. Look at Shadowed and Degraded: clients are told of neither.
	Decision leaselimit.Decision
	// Err is why nothing was decided; Decision is then the zero Decision.
	Err error
}

// An Option changes what the server interceptors do.
type Option func(*options)

type options struct {
	cost       func(fullMethod string, req any) int64
	exempt     []func(fullMethod string) bool
	observe    func(context.Context, Event)
	failed     func(error) *status.Status
	logger     *slog.Logger
	metadata   bool
	perMessage bool
	spread     time.Duration // of RetryInfo
}

func newOptions(opts []Option) options {
	o := options{exempt: []func(string) bool{Infrastructure}, metadata: true}
	for _, set := range opts {
		set(&o)
	}
	ratefields.CheckSpread("grpclimit", o.spread)
	return o
}

// WithCost gives the cost of a call in tokens; without it every call costs 1. req is the request, or the message of a stream;
// it is nil when a stream is charged at its opening. A cost below 1 is a fault of the program: the call fails with Internal.
// For what is free see [WithExempt].
func WithCost(cost func(fullMethod string, req any) int64) Option {
	return func(o *options) { o.cost = cost }
}

// WithExempt lets methods pass that exempt reports true for, beside those of [Infrastructure]: nothing is asked and nothing is
// spent, they need no tenant and get no metadata. Given several times, each may exempt; nil takes back those before it, Infrastructure
// too.
func WithExempt(exempt func(fullMethod string) bool) Option {
	return func(o *options) {
		if exempt == nil {
			o.exempt = nil
			return
		}
		o.exempt = append(o.exempt, exempt)
	}
}

// Infrastructure reports whether a method is one of health checks (grpc.health.v1) or server reflection: what asks them is
// an orchestrator or an operator, and a pod that is busy must not look like one that is ill. It is what is exempt by default.
func Infrastructure(fullMethod string) bool {
	return strings.HasPrefix(fullMethod, "/grpc.health.v1.") || strings.HasPrefix(fullMethod, "/grpc.reflection.")
}

// WithObserver calls observe for every charge, after it was decided and before the call is answered or goes on. It is on the path of
// the call, so it has to be quick.
func WithObserver(observe func(context.Context, Event)) Option {
	return func(o *options) { o.observe = observe }
}

// WithLogger sets where the interceptors log; default slog.Default(). Errors of the limiter are warnings, at most one a second.
// Degraded and shadowed decisions, and calls without a tenant, are lines of level debug.
func WithLogger(logger *slog.Logger) Option { return func(o *options) { o.logger = logger } }

// WithError has answer give the status of calls on which nothing was decided: err matches [ErrNoTenant] (by default
// Unauthenticated), quota.ErrUnknownTenant (PermissionDenied), leaselimit.ErrInvalidCost (Internal), or is another error of the
// limiter (Unavailable). nil, and a status of OK, let the call pass unlimited. It is not called for calls whose context is done.
func WithError(answer func(err error) *status.Status) Option {
	return func(o *options) { o.failed = answer }
}

// WithRetrySpread has each refused client told to wait for up to most longer, at random and never less than it has to; default
// 0, which is exact: clients that are refused together are then told the same moment. A spread of as many seconds as a limit takes to
// admit them brings them back as they can be served. It holds for RetryInfo and for the metadata; observers see the decision as it was.
func WithRetrySpread(most time.Duration) Option { return func(o *options) { o.spread = most } }

// WithoutMetadata leaves out the fields ratelimit-policy, ratelimit and retry-after. The details of statuses remain.
func WithoutMetadata() Option { return func(o *options) { o.metadata = false } }

// WithPerMessage charges each message that a stream's server receives, and not its opening. Unary calls do not change.
func WithPerMessage() Option { return func(o *options) { o.perMessage = true } }
