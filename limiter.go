package leaselimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// A Limiter holds each tenant to its limit of one class, together with all other replicas that use the same store. It is
// safe for concurrent use. Make one for each class and process, not one for each request.
type Limiter struct {
	cfg   Config
	known *quota.Limit // the limit of every tenant, if Config.Limits is quota.Fixed
	fixed *quota.Limit // known, unless an Observer wants to see decisions: who goes by it is not seen
	plain [2]Decision  // of a call that the pre-check refuses and of one that a lease covers, but for what differs
	pool  *lease.Pool
	store lease.Store

	tenants tenants
	count   counters
	warned  atomic.Int64 // when a fault of a single bucket was logged
	closed  atomic.Bool
	done    chan struct{} // closed with it, for those that wait
}

// New returns a Limiter over store. It starts nothing and asks nothing; a store that is away is met by the first call. The
// store is not closed by the limiter. Errors name the field of cfg and its bound.
func New(store lease.Store, cfg Config) (*Limiter, error) {
	if store == nil {
		return nil, errors.New("leaselimit: store is nil")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Limiter{cfg: cfg, store: store, done: make(chan struct{})}
	opts := cfg.options()
	opts.OnStore = l.storeChanged
	l.pool = lease.NewPool(store, opts)
	if limit, ok := quota.FixedLimit(cfg.Limits); ok {
		l.known = &limit
		if !cfg.Observer.samples() {
			l.fixed = &limit
		}
	}
	for i, source := range []Source{SourcePrecheck, SourceLease} {
		l.plain[i] = Decision{Allowed: i > 0, Source: source, Class: l.cfg.Class}
		if l.fixed != nil {
			l.plain[i].Limit = *l.fixed
		}
	}
	l.tenants.limiter = l
	l.tenants.byName.init()
	return l, nil
}

// Class is the class of the limits, Config.Class or its default.
func (l *Limiter) Class() string { return l.cfg.Class }

// Allow is AllowN with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, tenant string) (d Decision, err error) {
	err = l.decide(ctx, tenant, 1, &d)
	return d, err
}

// AllowN decides whether tenant may spend cost tokens now, and spends them if so: all or none. Almost always it decides from
// memory; otherwise it waits for the store, at most Config.StoreTimeout and no longer than ctx.
//
// A non-nil error means that no decision was made and nothing was spent: ctx is done, the limiter is closed, the cost or the
// tenant is invalid, or Config.Limits failed or gave an invalid limit (it matches [quota.ErrInvalid]). A store that does not
// answer is no error: Config.OnFailure decides. A cost above the capacity is refused, with RetryAfter [Never].
func (l *Limiter) AllowN(ctx context.Context, tenant string, cost int64) (d Decision, err error) {
	err = l.decide(ctx, tenant, cost, &d)
	return d, err
}

// decide is AllowN. The decision is written once, where the caller gets it: handed on from call to call, its copies took more time
// than everything else but the clock (docs/adr/0009).
//
// Nothing is checked that a call which fast decides cannot be: after Close no holder has a lease or a mark, and there is no tenant
// without a name.
func (l *Limiter) decide(ctx context.Context, tenant string, cost int64, d *Decision) error {
	if l.fixed != nil && cost > 0 {
		if t := l.tenants.load(tenant); t != nil && l.fast(t, l.fixed, cost, d) {
			return nil
		}
	}
	limit, err := l.admit(ctx, tenant, cost)
	if err != nil {
		return err
	}
	if l.fixed == nil {
		if t := l.tenants.load(tenant); t != nil && l.fast(t, &limit, cost, d) {
			l.cfg.Observer.decided(ctx, tenant, cost, d)
			return nil
		}
	}
	if err := l.slow(ctx, tenant, limit, cost, d); err != nil {
		return err
	}
	l.cfg.Observer.decided(ctx, tenant, cost, d)
	return nil
}

// admit checks the arguments of a call and looks up the limit. An error is counted.
func (l *Limiter) admit(ctx context.Context, tenant string, cost int64) (quota.Limit, error) {
	limit, err := l.check(ctx, tenant, cost)
	if err != nil {
		return limit, l.failed(err)
	}
	return limit, nil
}

// check is admit without the count, for what decides on no call.
func (l *Limiter) check(ctx context.Context, tenant string, cost int64) (quota.Limit, error) {
	switch {
	case l.closed.Load():
		return quota.Limit{}, ErrClosed
	case cost < 1:
		return quota.Limit{}, ErrInvalidCost
	case tenant == "":
		return quota.Limit{}, ErrInvalidTenant
	}
	return l.lookUp(ctx, tenant)
}

func (l *Limiter) failed(err error) error {
	l.count.errors.Add(1)
	return err
}

// lookUp asks Config.Limits.
func (l *Limiter) lookUp(ctx context.Context, tenant string) (quota.Limit, error) {
	if l.known != nil {
		return *l.known, nil
	}
	limit, err := l.cfg.Limits.Limit(ctx, tenant)
	if err != nil {
		return quota.Limit{}, fmt.Errorf("leaselimit: limit lookup: %w", err)
	}
	if err := limit.Validate(); err != nil {
		return quota.Limit{}, fmt.Errorf("leaselimit: limit lookup: %w", err)
	}
	return limit, nil
}

// fast decides from what is in memory, if that can decide. All of the decision is written before the call is counted, which is an
// atomic addition that waits for what was written before: the caller reads d at once, in pieces larger than what was written last
// (docs/adr/0009).
func (l *Limiter) fast(t *tenant, limit *quota.Limit, cost int64, d *Decision) bool {
	h := &t.holder
	if cost > limit.Capacity || (limit != l.fixed && !h.Under(limit)) { // the first is a matter of the limit, whatever is in hand
		return false
	}
	now := l.pool.Now()
	if h.Leased() {
		l.write(d, &l.plain[1], limit)
		if h.TrySpend(now, limit, cost, &d.Remaining) {
			h.Touch()
			return true
		}
		*d = Decision{}
	}
	r, ok := h.TryRefuse(now, cost)
	if !ok {
		return false
	}
	l.write(d, &l.plain[0], limit)
	d.Remaining, d.RetryAfter = r.Remaining, r.RetryAfter
	l.shadow(d)
	h.Touch()
	h.Refused(cost)
	return true
}

// write writes a decision under limit that differs from plain in no more.
func (l *Limiter) write(d, plain *Decision, limit *quota.Limit) {
	*d = *plain
	if limit != l.fixed {
		d.Limit = *limit
	}
}

// slow decides on every call that memory could not.
func (l *Limiter) slow(ctx context.Context, name string, limit quota.Limit, cost int64, d *Decision) error {
	d.Class, d.Limit = l.cfg.Class, limit
	switch {
	case limit.IsUnlimited():
		l.count.unlimited.Add(1)
		d.Allowed, d.Source, d.Remaining = true, SourceLease, math.MaxInt64
		return nil
	case cost > limit.Capacity:
		l.count.never.Add(1)
		d.Source, d.RetryAfter = SourcePrecheck, Never
		l.shadow(d)
		return nil
	case ctx.Err() != nil:
		return l.undecided(d, undecided(ctx.Err()))
	}
	for {
		t := l.tenants.get(name, limit)
		t.holder.Touch()
		r, err := t.holder.Spend(ctx, limit, cost)
		failed, away := errors.AsType[*lease.StoreError](err)
		switch {
		case err == nil:
			l.fill(d, &limit, r)
			t.slow.decided(r.Verdict)
			l.cfg.Observer.refused(name, cost, d)
			return nil
		case away && ctx.Err() == nil: // first, because in an outage it is every call
			err = failed
		case errors.Is(err, lease.ErrRetired): // evicted between the two lines above
			continue
		case errors.Is(err, lease.ErrClosed):
			return l.undecided(d, ErrClosed)
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return l.undecided(d, undecided(err))
		}
		l.warnOfBucket(err)
		l.fallback(d, t, cost)
		t.slow.failedOver(d.Allowed)
		l.shadow(d)
		return nil
	}
}

// undecided is the end of a call without a decision.
func (l *Limiter) undecided(d *Decision, err error) error {
	*d = Decision{}
	return l.failed(err)
}

// fill writes the public form of a holder's result into d, which is zero. It writes field by field: a copy of a limit that has just
// been written takes as long as the rest.
func (l *Limiter) fill(d *Decision, limit *quota.Limit, r lease.Result) {
	d.Class = l.cfg.Class
	d.Limit.Capacity, d.Limit.Refill, d.Limit.Per = limit.Capacity, limit.Refill, limit.Per
	d.Remaining = r.Remaining
	switch r.Verdict {
	case lease.FromLease:
		d.Allowed, d.Source = true, SourceLease
		return
	case lease.FromStore:
		l.count.allowedStore.Add(1)
		d.Allowed, d.Source = true, SourceStore
		return
	case lease.RefusedLocal:
		d.Source = SourcePrecheck
	case lease.RefusedFloor:
		l.count.refusedFloor.Add(1)
		d.Source = SourcePrecheck
	default:
		l.count.refusedStore.Add(1)
		d.Source = SourceStore
	}
	d.RetryAfter = r.RetryAfter
	l.shadow(d)
}

// shadow lets a refused call pass if Config.Shadow says so.
func (l *Limiter) shadow(d *Decision) {
	if l.cfg.Shadow && !d.Allowed {
		l.count.shadowed.Add(1)
		d.Allowed, d.Shadowed, d.RetryAfter = true, true, 0
	}
}

// Peek reports, after asking the store once, whether a cost of 1 would pass now, what remains, and when it could pass. It
// spends nothing. Where the store does not answer, the Decision is a degraded one by Config.OnFailure; errors are those of AllowN.
func (l *Limiter) Peek(ctx context.Context, tenant string) (Decision, error) {
	limit, err := l.check(ctx, tenant, 1)
	switch {
	case err != nil:
		return Decision{}, err
	case limit.IsUnlimited():
		return Decision{Allowed: true, Source: SourceLease, Class: l.cfg.Class, Limit: limit, Remaining: math.MaxInt64}, nil
	case limit.Capacity == 0:
		return Decision{Source: SourcePrecheck, Class: l.cfg.Class, Limit: limit, RetryAfter: Never}, nil
	}
	t := l.tenants.get(tenant, limit)
	r, err := t.holder.Peek(ctx, limit)
	switch {
	case err == nil:
		return Decision{
			Allowed: r.Allowed(), Source: SourceStore, Class: l.cfg.Class, Limit: limit,
			Remaining: r.Remaining, RetryAfter: r.RetryAfter,
		}, nil
	case ctx.Err() != nil:
		return Decision{}, undecided(ctx.Err())
	case errors.Is(err, lease.ErrClosed):
		return Decision{}, ErrClosed
	}
	l.warnOfBucket(err)
	return l.peekFallback(t, limit), nil
}

// Reset fills tenant's bucket up: the store's at once, and in force in every replica within 6 s. Leases that are out stay
// out. It fails with ctx's error, or the store's. For a tenant without a limit it does nothing.
func (l *Limiter) Reset(ctx context.Context, tenant string) error {
	limit, err := l.check(ctx, tenant, 1)
	switch {
	case err != nil:
		return err
	case limit.IsUnlimited():
		return nil
	}
	t := l.tenants.get(tenant, limit)
	if err := t.holder.Reset(ctx); err != nil {
		if errors.Is(err, lease.ErrClosed) {
			err = ErrClosed
		}
		return fmt.Errorf("leaselimit: reset: %w", err)
	}
	return nil
}

// Close returns all leases to the store and ends everything that the limiter started. It waits until that is done, or for
// ctx; then what was not returned comes back by itself within 2*LeaseTTL, and Close returns ctx's error. Calls under way are
// still answered, but for Wait, which returns [ErrClosed] as later calls do. Closing again waits for the first Close and returns nil.
func (l *Limiter) Close(ctx context.Context) error {
	if !l.closed.Swap(true) {
		close(l.done)
	}
	l.tenants.stop()
	if err := l.pool.Close(ctx, l.tenants.holders); err != nil {
		return fmt.Errorf("leaselimit: close: %w", err)
	}
	return nil
}
