package leaselimit

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// A Tenant is a handle on one tenant of a Limiter: the same methods without the key, and without looking it up for every
// call. It is valid until the limiter is closed, whatever is evicted meanwhile.
type Tenant struct {
	limiter *Limiter
	name    string
	entry   atomic.Pointer[tenant]
}

// Tenant returns a handle on tenant.
func (l *Limiter) Tenant(tenant string) *Tenant { return &Tenant{limiter: l, name: tenant} }

// Allow is AllowN with a cost of 1.
func (t *Tenant) Allow(ctx context.Context) (Decision, error) { return t.AllowN(ctx, 1) }

// AllowN is [Limiter.AllowN] for this tenant.
func (t *Tenant) AllowN(ctx context.Context, cost int64) (Decision, error) {
	l := t.limiter
	limit, err := l.admit(ctx, t.name, cost)
	if err != nil {
		return Decision{}, err
	}
	if e := t.entry.Load(); e != nil {
		if d, ok := l.fast(e, &limit, cost); ok {
			return d, nil
		}
	}
	d, err := l.slow(ctx, t.name, limit, cost)
	t.entry.Store(l.tenants.load(t.name))
	return d, err
}

// Wait is [Limiter.Wait] for this tenant.
func (t *Tenant) Wait(ctx context.Context, cost int64) error {
	return t.limiter.Wait(ctx, t.name, cost)
}

// Peek is [Limiter.Peek] for this tenant.
func (t *Tenant) Peek(ctx context.Context) (Decision, error) { return t.limiter.Peek(ctx, t.name) }

// Reset is [Limiter.Reset] for this tenant.
func (t *Tenant) Reset(ctx context.Context) error { return t.limiter.Reset(ctx, t.name) }

// Bound is [Limiter.Bound] for this tenant.
func (t *Tenant) Bound() Bound { return t.limiter.Bound(t.name) }

// tenant is what is kept of a tenant in memory.
type tenant struct {
	name     string
	holder   *lease.Holder
	used     atomic.Bool // since the clock hand last passed
	fallback fallback
}

// touch marks t as in use. It writes only if it has to, so that a hot tenant's line stays shared.
func (t *tenant) touch() {
	if !t.used.Load() {
		t.used.Store(true)
	}
}

// tenants is the bounded set of tenants in memory. Lookups are lock-free; when it is full, a new tenant evicts one that was
// not used since the clock hand last passed it (the CLOCK algorithm of Corbató, 1968).
type tenants struct {
	limiter *Limiter
	byName  sync.Map // name -> *tenant

	mu struct {
		sync.Mutex
		ring    []*tenant
		hand    int
		evicted int64
		retired spent // of tenants that are gone
	}
}

// maxSteps is how far the hand goes for one eviction before it takes whom it meets, so that no call waits for a search.
const maxSteps = 64

func (ts *tenants) load(name string) *tenant {
	if v, ok := ts.byName.Load(lease.TenantName(name)); ok {
		return v.(*tenant)
	}
	return nil
}

func (ts *tenants) get(name string, limit quota.Limit) *tenant {
	if t := ts.load(name); t != nil {
		return t
	}
	name = strings.Clone(lease.TenantName(name)) // not to pin a request that name is a part of
	l := ts.limiter
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if v, ok := ts.byName.Load(name); ok {
		return v.(*tenant)
	}
	t := &tenant{name: name, holder: l.pool.NewHolder(lease.Key{Tenant: name, Class: l.cfg.Class}, limit)}
	if len(ts.mu.ring) < l.cfg.MaxTenants {
		ts.mu.ring = append(ts.mu.ring, t)
	} else {
		i := ts.victimLocked()
		ts.evictLocked(ts.mu.ring[i])
		ts.mu.ring[i] = t
	}
	ts.byName.Store(name, t)
	if l.closed.Load() { // Close may have passed over it
		t.holder.Close()
	}
	return t
}

func (ts *tenants) victimLocked() int {
	ring := ts.mu.ring
	for range maxSteps {
		i := ts.mu.hand
		ts.mu.hand = (i + 1) % len(ring)
		if !ring[i].used.Swap(false) {
			return i
		}
	}
	return ts.mu.hand
}

func (ts *tenants) evictLocked(t *tenant) {
	ts.byName.Delete(t.name)
	tokens, calls, refused := t.holder.Retire()
	ts.mu.evicted++
	ts.mu.retired.add(tokens, calls, refused)
}

// holders yields the holders of all tenants.
func (ts *tenants) holders(yield func(*lease.Holder) bool) {
	ts.byName.Range(func(_, v any) bool { return yield(v.(*tenant).holder) })
}
