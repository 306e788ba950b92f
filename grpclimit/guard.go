package grpclimit

import (
	"context"
	"errors"

	"github.com/leaselimit/leaselimit"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// guard decides on calls and words the answers.
type guard struct {
	options

	lim    Allower
	tenant func(ctx context.Context, fullMethod string) (string, error)
	fields fields
}

func newGuard(
	lim Allower, tenant func(ctx context.Context, fullMethod string) (string, error), opts []Option,
) *guard {
	if lim == nil {
		panic("grpclimit: lim is nil")
	}
	if tenant == nil {
		panic("grpclimit: tenant is nil")
	}
	return &guard{options: newOptions(opts), lim: lim, tenant: tenant}
}

func (g *guard) exempts(fullMethod string) bool { return g.exempt != nil && g.exempt(fullMethod) }

// who is the tenant of a call.
func (g *guard) who(ctx context.Context, fullMethod string) (string, error) {
	tenant, err := g.tenant(ctx, fullMethod)
	switch {
	case err != nil:
		return "", g.undecided(ctx, Event{FullMethod: fullMethod, Err: err}, codes.Unauthenticated)
	case tenant == "":
		return "", g.undecided(ctx, Event{FullMethod: fullMethod, Err: ErrNoTenant}, codes.Unauthenticated)
	}
	return tenant, nil
}

// charge decides. err is the status of a call that must not go on. md is for the client, or nil.
func (g *guard) charge(ctx context.Context, fullMethod, tenant string, req any) (md metadata.MD, err error) {
	cost := int64(1)
	if g.cost != nil {
		cost = g.cost(fullMethod, req)
	}
	d, err := g.lim.AllowN(ctx, tenant, cost)
	if err != nil {
		code := codes.Unavailable
		if errors.Is(err, leaselimit.ErrInvalidCost) {
			code = codes.Internal
		}
		return nil, g.undecided(ctx, Event{FullMethod: fullMethod, Tenant: tenant, Err: err}, code)
	}
	if g.observe != nil {
		g.observe(ctx, Event{FullMethod: fullMethod, Tenant: tenant, Decision: d})
	}
	if g.metadata {
		md = g.fields.of(d)
	}
	if !d.Allowed {
		return md, refusal(tenant, d, g.degradedAsLimit)
	}
	return md, nil
}

// undecided is the answer to a call on which nothing was decided; nil lets it pass. The text of an error stays here: it is
// for the observer, not for clients.
func (g *guard) undecided(ctx context.Context, e Event, code codes.Code) error {
	if g.observe != nil {
		g.observe(ctx, e)
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	if g.failed != nil {
		return g.failed(e.Err).Err()
	}
	if e.Tenant == "" { // the tenant function knows best, if it speaks gRPC
		if s, ok := status.FromError(e.Err); ok {
			return s.Err()
		}
	}
	switch code {
	case codes.Unauthenticated:
		return status.Error(code, "no tenant to charge the call to")
	case codes.Internal:
		return status.Error(code, "the cost of the call is not valid")
	}
	return status.Error(code, "the rate limiter cannot decide")
}
