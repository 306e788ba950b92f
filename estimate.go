package leaselimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaselimit/leaselimit/lease"
)

// An Estimate is the decision on a call whose cost is known only when it is done, such as the tokens of a language model or the
// bytes of an answer. It was charged what was estimated; Settle makes that what it did cost. One that is not settled has
// cost its estimate.
//
// An Estimate is not safe for concurrent use, and of its copies only one is to be settled.
type Estimate struct {
	Decision

	limiter *Limiter // nil: nothing was charged to the bucket
	tenant  *tenant
	name    string
	cost    int64
	receipt lease.Receipt
	settled bool
}

// Estimate is [Limiter.AllowN] for a cost that is an estimate, to be settled when the actual cost is known.
func (l *Limiter) Estimate(ctx context.Context, tenant string, cost int64) (e Estimate, err error) {
	limit, err := l.admit(ctx, tenant, cost)
	if err != nil {
		return Estimate{}, err
	}
	if t := l.tenants.load(tenant); t != nil && cost <= limit.Capacity {
		p := lease.Part{Holder: &t.holder, Limit: limit, Cost: cost}
		if p.Try() {
			t.holder.Touch()
			l.fill(&e.Decision, &limit, p.Result)
			e.receipt = p.Receipt()
			e.charged(l, t, tenant, cost)
			l.show(ctx, tenant, cost, e.Decision)
			return e, nil
		}
	}
	e.receipt = l.pool.Since() // before anything is spent
	if err := l.slow(ctx, tenant, limit, cost, &e.Decision); err != nil {
		return Estimate{}, err
	}
	e.charged(l, nil, tenant, cost)
	l.show(ctx, tenant, cost, e.Decision)
	return e, nil
}

// show shows a decision to the Observer, if it samples them.
func (l *Limiter) show(ctx context.Context, tenant string, cost int64, d Decision) {
	if l.cfg.Observer.samples() {
		l.cfg.Observer.decided(ctx, tenant, cost, &d)
	}
}

// Estimate is [Limiter.Estimate] for this tenant.
func (t *Tenant) Estimate(ctx context.Context, cost int64) (Estimate, error) {
	return t.limiter.Estimate(ctx, t.name, cost)
}

// charged notes what was charged to the bucket, if anything was.
func (e *Estimate) charged(l *Limiter, t *tenant, name string, cost int64) {
	if e.Allowed && !e.Shadowed && !e.Degraded() && !e.Limit.IsUnlimited() {
		if t == nil {
			t = l.tenants.get(name, e.Limit)
		}
		e.limiter, e.tenant, e.name, e.cost = l, t, name, cost
	}
}

// Settle replaces the estimated cost by the actual one, which may be 0.
//
// What was estimated too much goes back, without a trip that the call waits for: into the lease that it came from, while that
// lives and the store has not been told that it is spent; otherwise to the bucket, less what the bucket was refilled with since,
// and not at all if the limit has changed since. So settle soon.
//
// What was estimated too little is charged after the fact: to the leases in hand, then to the bucket, which may go into debt.
// Debt is one capacity at most; what is beyond is forgiven. For this trip Settle waits, at most Config.StoreTimeout and no
// longer than ctx; the charge is sent in any case, so ctx may be done already. It is sent once: if Settle fails with ctx's error,
// or the store's, the bucket may or may not be charged.
//
// Nothing is done, and nil returned, for an estimate that charged nothing to the bucket: one that is refused, degraded, of an
// unlimited tenant, or refused and let pass by Config.Shadow. A negative cost is [ErrInvalidActual]. The second Settle is [ErrSettled].
// After [Limiter.Close] it is [ErrClosed], and the estimate stands.
func (e *Estimate) Settle(ctx context.Context, actual int64) error {
	switch {
	case actual < 0:
		return ErrInvalidActual
	case e.settled:
		return ErrSettled
	case e.limiter != nil && e.limiter.closed.Load():
		return ErrClosed
	}
	e.settled = true
	if e.limiter == nil || actual == e.cost {
		return nil
	}
	err := e.settle(ctx, actual)
	if errors.Is(err, lease.ErrClosed) {
		return ErrClosed
	}
	if err != nil {
		return fmt.Errorf("leaselimit: settle: %w", err)
	}
	return nil
}

func (e *Estimate) settle(ctx context.Context, actual int64) error {
	l := e.limiter
	limit, err := l.lookUp(ctx, e.name)
	if err != nil { // nobody knows better
		limit = e.Limit
	}
	if actual < e.cost {
		return e.tenant.holder.Refund(e.receipt, limit == e.Limit, e.cost-actual)
	}
	if limit.IsUnlimited() {
		return nil
	}
	t := l.tenants.get(e.name, limit)
	err = lease.Take(ctx, []*lease.Part{{Holder: &t.holder, Limit: limit, Cost: actual - e.cost, Owe: true}})
	if err != nil {
		l.warnOfBucket(err)
	}
	return err
}
