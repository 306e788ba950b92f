package leaselimit

import (
	"container/heap"
	"slices"
	"sync/atomic"

	"github.com/leaselimit/leaselimit/lease"
)

// TenantStats is a snapshot of what a Limiter knows of one tenant in memory. A tenant that made room for others begins anew.
type TenantStats struct {
	Tenant string
	// Calls allowed and refused since the tenant came into memory, with shadowed ones among the refused, and without those that
	// need no bucket: of an unlimited tenant, or dearer than the capacity. Degraded of them were decided by
	// Config.OnFailure.
	Allowed, Refused, Degraded int64
	// View is what the leases know.
	lease.View
}

// callsSlow are the calls of one tenant that its holder does not count.
type callsSlow struct {
	allowed atomic.Int64
	others  atomic.Pointer[callsNotAllowed] // nil: none
}

type callsNotAllowed struct{ refused, degraded atomic.Int64 }

// rest is the counts that few tenants need, from now on if there were none.
func (c *callsSlow) rest() *callsNotAllowed {
	if r := c.others.Load(); r != nil {
		return r
	}
	c.others.CompareAndSwap(nil, new(callsNotAllowed))
	return c.others.Load()
}

// decided counts a call that did not end on the hot path.
func (c *callsSlow) decided(v lease.Verdict) {
	switch v {
	case lease.FromLease, lease.RefusedLocal: // the holder has them
	case lease.FromStore:
		c.allowed.Add(1)
	default:
		c.rest().refused.Add(1)
	}
}

// failedOver counts a call that the failure policy decided.
func (c *callsSlow) failedOver(allowed bool) {
	c.rest().degraded.Add(1)
	if allowed {
		c.allowed.Add(1)
	} else {
		c.rest().refused.Add(1)
	}
}

func (t *tenant) stats() TenantStats {
	s := TenantStats{Tenant: t.name(), View: t.holder.View()}
	s.Allowed, s.Refused = s.Calls+t.slow.allowed.Load(), s.View.Refused
	if r := t.slow.others.Load(); r != nil {
		s.Refused, s.Degraded = s.Refused+r.refused.Load(), r.degraded.Load()
	}
	return s
}

// Tenants are snapshots of the n tenants in memory that have the most calls a second of late, the busiest first. It visits every
// tenant in memory.
func (l *Limiter) Tenants(n int) []TenantStats {
	var top busiest
	for _, t := range l.tenants.all() {
		_, _, rate := t.holder.Activity()
		switch {
		case len(top) < n:
			heap.Push(&top, busy{t, rate})
		case n > 0 && rate > top[0].rate:
			top[0] = busy{t, rate}
			heap.Fix(&top, 0)
		}
	}
	all := make([]TenantStats, 0, len(top))
	for len(top) > 0 {
		all = append(all, heap.Pop(&top).(busy).tenant.stats())
	}
	slices.Reverse(all)
	return all
}

// TenantStats is a snapshot of tenant; ok is false if nothing of it is in memory.
func (l *Limiter) TenantStats(tenant string) (s TenantStats, ok bool) {
	t := l.tenants.load(tenant)
	if t == nil {
		return TenantStats{}, false
	}
	return t.stats(), true
}

// busiest is a heap with the least busy on top.
type busiest []busy

type busy struct {
	tenant *tenant
	rate   float64
}

func (b busiest) Len() int           { return len(b) }
func (b busiest) Less(i, j int) bool { return b[i].rate < b[j].rate }
func (b busiest) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *busiest) Push(x any)        { *b = append(*b, x.(busy)) }

func (b *busiest) Pop() any {
	old := *b
	last := old[len(old)-1]
	*b = old[:len(old)-1]
	return last
}

// StoreStats are the calls to the store since New, as seen from here.
type StoreStats struct {
	Calls  []lease.CallStats // one for each operation, "acquire" and "return" first
	Errors []lease.CallError // the last that failed, at most 16, the latest first
}

// StoreStats returns what came of the calls to the store.
func (l *Limiter) StoreStats() StoreStats {
	return StoreStats{Calls: l.pool.Calls(), Errors: l.pool.Errors()}
}
