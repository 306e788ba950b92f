package leaselimit

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// Stats is a snapshot of what a Limiter did since New. Counts of calls add up: Allowed() + Refused() + Errors is the number
// of calls, whose shadowed ones are counted as refused. Peek and Reset decide on no call.
type Stats struct {
	// Calls allowed: from a lease, by the store, by the failure policy, and of unlimited tenants.
	AllowedLease, AllowedStore, AllowedFallback, AllowedUnlimited int64
	// Calls refused: by the pre-check, by the store, unasked within 5 ms or so of a refusal by the store (the floor, the one
	// refusal that may be wrong about the store), by the failure policy, and for a cost above the capacity.
	RefusedPrecheck, RefusedStore, RefusedFloor, RefusedFallback, RefusedNever int64
	// RefusedTogether are calls of AllowAll that were refused by the limit of another limiter.
	RefusedTogether int64
	// Errors are calls that were not decided. Shadowed are refusals that Config.Shadow let pass.
	Errors, Shadowed int64
	// Waited are calls that waited for the store.
	Waited int64

	// Draws and Returns are calls to the store; DrawFailures of the draws failed, LateDraws were answered after
	// Config.StoreTimeout.
	Draws, DrawFailures, LateDraws, Returns int64

	// Tokens, of leases: granted = spent + returned + lost + stranded + held, but for returns under way. Lost were
	// returned without the store's word that they arrived; stranded expired unspent.
	TokensGranted, TokensSpent, TokensReturned, TokensLost, TokensStranded, TokensHeld int64
	// TokensUndone were spent and put back into their leases, by Estimate.Settle or AllowAll. They are not in TokensSpent any more,
	// which falls by as many: the sum of the two never does.
	TokensUndone int64
	// TokensWaiters were granted to calls that waited, and charged by Estimate.Settle.
	TokensWaiters int64

	// Replicas is how many share the limits as far as is known: Config.Replicas, or as counted by the store; 0 is unknown.
	Replicas int64
	// Tenants are in memory now; Evicted made room for others, and Idle left because they had not been called for LeaseTTL or longer.
	Tenants, Evicted, Idle int64
	// Overshoot is by how much, as a fraction of the capacity, this replica alone is known to have admitted more than
	// capacity + refill*t of one tenant: the most of those in memory, measured with each draw, never above the truth.
	// MaxOvershoot is its bound, for all replicas together.
	Overshoot, MaxOvershoot float64

	// ClockLag is the furthest that the coarse clock of Config.CoarseClock was seen behind, 0 without one. Beyond two of its
	// resolutions it puts off refusals that may be wrong by as much, and the machine is too busy for its resolution.
	ClockLag time.Duration

	// Failures are the calls to the store that failed, by reason; every reason is there. DrawFailures counts draws alone.
	Failures map[lease.Reason]int64
	// Degraded reports that the last call to the store failed. BreakerOpen reports that the breaker is open: no call waits for
	// the store, and Config.OnFailure decides on those that no lease covers. DegradedFor is how long it was open, in all.
	Degraded, BreakerOpen bool
	DegradedFor           time.Duration
}

// Allowed is the number of calls allowed, but for shadowed ones.
func (s Stats) Allowed() int64 {
	return s.AllowedLease + s.AllowedStore + s.AllowedFallback + s.AllowedUnlimited
}

// Refused is the number of calls refused, with shadowed ones.
func (s Stats) Refused() int64 {
	return s.RefusedPrecheck + s.RefusedStore + s.RefusedFloor + s.RefusedFallback + s.RefusedNever + s.RefusedTogether
}

// Undershoot is the number of tokens that were leased by this replica and that no caller got: stranded, or lost on the way
// back.
func (s Stats) Undershoot() int64 { return s.TokensStranded + s.TokensLost }

// StoreCalls is the number of draws and returns. [Limiter.StoreStats] has the calls of all operations.
func (s Stats) StoreCalls() int64 { return s.Draws + s.Returns }

// Plus is the sum of the counts of s and o, the larger of their overshoots, lags, times and replicas, and degraded if one of them is.
func (s Stats) Plus(o Stats) Stats {
	for sum, n := range map[*int64]int64{
		&s.AllowedLease: o.AllowedLease, &s.AllowedStore: o.AllowedStore, &s.AllowedFallback: o.AllowedFallback,
		&s.AllowedUnlimited: o.AllowedUnlimited, &s.RefusedPrecheck: o.RefusedPrecheck, &s.RefusedStore: o.RefusedStore,
		&s.RefusedFloor: o.RefusedFloor, &s.RefusedFallback: o.RefusedFallback, &s.RefusedNever: o.RefusedNever,
		&s.RefusedTogether: o.RefusedTogether, &s.Errors: o.Errors, &s.Shadowed: o.Shadowed, &s.Waited: o.Waited,
		&s.Draws: o.Draws, &s.DrawFailures: o.DrawFailures, &s.LateDraws: o.LateDraws, &s.Returns: o.Returns,
		&s.TokensGranted: o.TokensGranted, &s.TokensSpent: o.TokensSpent, &s.TokensReturned: o.TokensReturned,
		&s.TokensLost: o.TokensLost, &s.TokensStranded: o.TokensStranded, &s.TokensHeld: o.TokensHeld,
		&s.TokensUndone: o.TokensUndone, &s.TokensWaiters: o.TokensWaiters, &s.Tenants: o.Tenants, &s.Evicted: o.Evicted, &s.Idle: o.Idle,
	} {
		*sum += n
	}
	s.Overshoot, s.MaxOvershoot = max(s.Overshoot, o.Overshoot), max(s.MaxOvershoot, o.MaxOvershoot)
	s.ClockLag = max(s.ClockLag, o.ClockLag)
	s.Degraded, s.BreakerOpen = s.Degraded || o.Degraded, s.BreakerOpen || o.BreakerOpen
	s.DegradedFor = max(s.DegradedFor, o.DegradedFor)
	sum := make(map[lease.Reason]int64, len(s.Failures))
	maps.Copy(sum, s.Failures)
	for reason, n := range o.Failures {
		sum[reason] += n
	}
	s.Failures = sum
	s.Replicas = max(s.Replicas, o.Replicas)
	return s
}

type counters struct {
	allowedStore, allowedFallback, unlimited    atomic.Int64
	refusedStore, refusedFloor, refusedFallback atomic.Int64
	never, together, errors, shadowed           atomic.Int64
}

// spent is what holders know of calls decided from memory.
type spent struct{ tokens, calls, refused int64 }

func (s *spent) add(tokens, calls, refused int64) {
	s.tokens += tokens
	s.calls += calls
	s.refused += refused
}

// Stats returns the counts. It visits every tenant in memory.
func (l *Limiter) Stats() Stats {
	c, p := &l.count, l.pool.Counters()
	s := Stats{
		AllowedStore: c.allowedStore.Load(), AllowedFallback: c.allowedFallback.Load(), AllowedUnlimited: c.unlimited.Load(),
		RefusedStore: c.refusedStore.Load(), RefusedFloor: c.refusedFloor.Load(),
		RefusedFallback: c.refusedFallback.Load(), RefusedNever: c.never.Load(), RefusedTogether: c.together.Load(),
		Errors: c.errors.Load(), Shadowed: c.shadowed.Load(), Waited: p.Waited.Load(),
		Draws: p.Draws.Load(), DrawFailures: p.Failures.Load(), LateDraws: p.Late.Load(), Returns: p.ReturnCalls.Load(),
		TokensGranted: p.SurplusTokens.Load(), TokensReturned: p.Returned.Load(), TokensLost: p.ReturnLost.Load(),
		TokensStranded: p.Stranded.Load(), TokensUndone: p.Undone.Load(), TokensWaiters: p.WaiterTokens.Load(),
		Replicas: int64(l.pool.Replicas()), MaxOvershoot: l.cfg.MaxOvershoot, ClockLag: l.pool.ClockLag(),
		Failures: make(map[lease.Reason]int64),
	}
	for _, reason := range lease.Reasons() {
		s.Failures[reason] = p.Failed(reason).Load()
	}
	state := l.pool.StoreState()
	s.Degraded, s.BreakerOpen, s.DegradedFor = state.Failing, state.Open, state.Down
	ts := &l.tenants
	ts.mu.Lock()
	sum := ts.mu.retired
	s.Evicted, s.Idle, s.Tenants = ts.mu.evicted, ts.mu.idle, int64(len(ts.mu.ring))
	ring := append([]*tenant(nil), ts.mu.ring...)
	ts.mu.Unlock()
	for _, t := range ring {
		sum.add(t.holder.Spent())
		s.TokensHeld += t.holder.Held()
		s.Overshoot = max(s.Overshoot, t.holder.Overshoot())
	}
	s.AllowedLease, s.RefusedPrecheck = sum.calls-p.LateExtra.Load(), sum.refused+p.LateRefused.Load()
	s.TokensSpent = sum.tokens
	return s
}

// A Bound is the guarantee in force for a tenant: in every window of length t, over all replicas,
// admitted <= Limit.Capacity + refill*t + Tokens. See docs/accuracy.md for the proof and for what stands beside it.
type Bound struct {
	// Tokens is the overshoot budget: floor(MaxOvershoot*Capacity), 0 in exact mode.
	Tokens int64
	// The inputs.
	Limit        quota.Limit
	MaxOvershoot float64
	// Share is the most that may be leased out at once, in tokens: floor(LeaseShare*Capacity).
	Share int64
}

// Bound returns the bound in force for tenant. Its limit comes from Config.Limits, waited for at most Config.StoreTimeout; the
// zero Bound means that it is unknown, or that the tenant is unlimited.
func (l *Limiter) Bound(tenant string) Bound {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.StoreTimeout)
	defer cancel()
	limit, err := l.lookUp(ctx, tenant)
	if err != nil || limit.IsUnlimited() {
		return Bound{Limit: limit}
	}
	terms := l.pool.Options().Terms(limit)
	return Bound{Tokens: terms.Budget, Limit: limit, MaxOvershoot: l.cfg.MaxOvershoot, Share: terms.Share}
}
