package leaselimit

import (
	"context"
	"math/rand/v2"

	"github.com/leaselimit/leaselimit/lease"
)

// An Observer is told what a Limiter does off the hot path, and of some decisions. A function that is nil costs nothing.
//
// The functions are called where the thing happens, by any goroutine and several at a time, some of them under a tenant's lock:
// they have to be quick, and must not call the limiter.
type Observer struct {
	// CallSent is told of a call to the store that is about to be sent: a draw, a return of leases, a peek, a reset, or a
	// count of the replicas. The context that it returns goes to the store and to CallAnswered. It is not derived from that of
	// any caller, since a draw is for all that wait.
	CallSent func(ctx context.Context, c lease.Call) context.Context
	// CallAnswered is told how that call ended, when, and why.
	CallAnswered func(ctx context.Context, c lease.Call, a lease.Answer)
	// Stranded is told of tokens that were leased and expired unspent.
	Stranded func(tenant string, tokens int64)
	// Refused is told of a call that the store refused. What is refused without asking it is not worth a call.
	Refused func(tenant string, cost int64, d Decision)
	// StateChanged is told that the store does not answer any more, and why, or that it answers again: when a line is logged.
	StateChanged func(degraded bool, reason lease.Reason)
	// Evicted is told of a tenant that made room for another.
	Evicted func(tenant string)

	// Decided is told of one decision in Sample, chosen at random, whoever made it. Sample must be 1 or more where Decided is
	// set.
	Decided func(ctx context.Context, tenant string, cost int64, d Decision)
	Sample  int
}

// hooks is the part of o that the leases call.
func (o *Observer) hooks() lease.Hooks {
	if o == nil {
		return lease.Hooks{}
	}
	h := lease.Hooks{CallSent: o.CallSent, CallAnswered: o.CallAnswered}
	if o.Stranded != nil {
		h.Stranded = func(key lease.Key, tokens int64) { o.Stranded(key.Tenant, tokens) }
	}
	return h
}

func (o *Observer) refused(tenant string, cost int64, d *Decision) {
	if o != nil && o.Refused != nil && d.Source == SourceStore && (!d.Allowed || d.Shadowed) {
		o.Refused(tenant, cost, *d)
	}
}

func (o *Observer) stateChanged(degraded bool, reason lease.Reason) {
	if o != nil && o.StateChanged != nil {
		o.StateChanged(degraded, reason)
	}
}

func (o *Observer) evicted(tenant string) {
	if o != nil && o.Evicted != nil {
		o.Evicted(tenant)
	}
}

func (o *Observer) samples() bool { return o != nil && o.Decided != nil }

// decided shows one decision in Sample.
func (o *Observer) decided(ctx context.Context, tenant string, cost int64, d *Decision) {
	if o.samples() && rand.N(o.Sample) == 0 {
		o.Decided(ctx, tenant, cost, *d)
	}
}
