package serve

import (
	"context"

	"github.com/leaselimit/leaselimit"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// decide decides on the charges of a request, all or nothing of each tenant. What spends nothing comes first; once something is
// refused, nobody asks the limits of the tenants that follow, and their charges pass without figures. What the tenants before
// have spent stays spent: their buckets may be on other servers.
func decide(ctx context.Context, charges []charge) ([]leaselimit.Decision, error) {
	decisions := make([]leaselimit.Decision, len(charges))
	refused := false
	for i, c := range charges {
		if c.spends() {
			decisions[i].Allowed = true
			continue
		}
		d, err := c.look(ctx)
		if err := c.check(ctx, d, err); err != nil {
			return nil, err
		}
		decisions[i] = d
		refused = refused || !d.Allowed
	}
	done := map[string]bool{}
	for _, c := range charges {
		if refused {
			break
		}
		if !c.spends() || done[c.tenant] {
			continue
		}
		done[c.tenant] = true
		passed, err := spend(ctx, c.tenant, charges, decisions)
		if err != nil {
			return nil, err
		}
		refused = !passed
	}
	return decisions, nil
}

// spend decides on all charges of one tenant, all or nothing, and notes what each limit says.
func spend(ctx context.Context, tenant string, charges []charge, decisions []leaselimit.Decision) (passed bool, err error) {
	var at []int
	var together []leaselimit.Charge
	for i, c := range charges {
		if c.spends() && c.tenant == tenant {
			at = append(at, i)
			together = append(together, leaselimit.Charge{Limiter: c.lim, Cost: c.cost})
		}
	}
	each := make([]leaselimit.Decision, len(at))
	d, err := leaselimit.AllowAllInto(ctx, tenant, each, together...)
	for j, i := range at {
		if err := charges[i].check(ctx, each[j], err); err != nil {
			return false, err
		}
		decisions[i] = each[j]
	}
	return d.Allowed, nil
}

// spends reports whether a limiter has to be asked for tokens.
func (c charge) spends() bool { return !c.over && c.lim != nil && c.cost > 0 }

// look decides on a charge that spends nothing.
func (c charge) look(ctx context.Context) (leaselimit.Decision, error) {
	switch {
	case c.over:
		return leaselimit.Decision{RetryAfter: leaselimit.Never}, nil
	case c.lim == nil:
		return leaselimit.Decision{Allowed: true}, nil
	}
	d, err := c.lim.Peek(ctx, c.tenant)
	d.Allowed = d.Allowed || c.class.Shadow && err == nil
	return d, err
}

// check is the error that Envoy is told in the place of a decision.
func (c charge) check(ctx context.Context, d leaselimit.Decision, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return status.Error(codes.Unavailable, err.Error())
	case d.Degraded() && !d.Allowed && c.class.OnFailure == onFailureError:
		return status.Error(codes.Unavailable, "the store does not answer")
	}
	return nil
}
