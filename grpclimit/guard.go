package grpclimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/edgelog"
	"github.com/leaselimit/leaselimit/internal/ratefields"
	"github.com/leaselimit/leaselimit/quota"
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
	log    *edgelog.Log
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
	g := &guard{options: newOptions(opts), lim: lim, tenant: tenant}
	g.log = edgelog.New("grpclimit", g.logger)
	return g
}

func (g *guard) exempts(fullMethod string) bool {
	for _, exempt := range g.exempt {
		if exempt(fullMethod) {
			return true
		}
	}
	return false
}

// who is the tenant of a call.
func (g *guard) who(ctx context.Context, fullMethod string) (string, error) {
	tenant, err := g.tenant(ctx, fullMethod)
	switch {
	case err != nil:
		return "", g.undecided(ctx, Event{FullMethod: fullMethod, Err: fmt.Errorf("%w: %w", ErrNoTenant, err)})
	case tenant == "":
		return "", g.undecided(ctx, Event{FullMethod: fullMethod, Err: ErrNoTenant})
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
		return nil, g.undecided(ctx, Event{FullMethod: fullMethod, Tenant: tenant, Err: err})
	}
	if g.observe != nil {
		g.observe(ctx, Event{FullMethod: fullMethod, Tenant: tenant, Decision: d})
	}
	g.log.Decision(ctx, tenant, d)
	told := ratefields.Spread(d, g.spread)
	if g.metadata {
		md = g.fields.of(&told)
	}
	if !d.Allowed {
		return md, refusal(tenant, told)
	}
	return md, nil
}

// undecided is the answer to a call on which nothing was decided; nil lets it pass. The text of an error stays here: it is
// for the observer and the log, not for clients.
func (g *guard) undecided(ctx context.Context, e Event) error {
	if g.observe != nil {
		g.observe(ctx, e)
	}
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case e.Tenant == "":
		g.log.NoTenant(ctx, e.Err)
	default:
		g.log.NoDecision(ctx, e.Err)
	}
	switch {
	case g.failed != nil:
		return g.failed(e.Err).Err()
	case e.Tenant == "":
		if own, ok := errors.AsType[interface {
			error
			GRPCStatus() *status.Status
		}](e.Err); ok && own.GRPCStatus().Code() != codes.OK { // the tenant function knows best, if it speaks gRPC
			return own.GRPCStatus().Err()
		}
		return status.Error(codes.Unauthenticated, "no tenant to charge the call to")
	case errors.Is(e.Err, quota.ErrUnknownTenant):
		return status.Error(codes.PermissionDenied, "the tenant has no limit")
	case errors.Is(e.Err, leaselimit.ErrInvalidCost):
		return status.Error(codes.Internal, "the cost of the call is not valid")
	}
	return status.Error(codes.Unavailable, "the rate limiter cannot decide")
}
