package leaselimit

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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

// Tenant returns a handle on tenant, for callers that decide on the same one often: it saves looking the tenant up in each call.
func (l *Limiter) Tenant(tenant string) *Tenant { return &Tenant{limiter: l, name: tenant} }

// Allow is AllowN with a cost of 1.
func (t *Tenant) Allow(ctx context.Context) (d Decision, err error) {
	err = t.decide(ctx, 1, &d)
	return d, err
}

// AllowN is [Limiter.AllowN] for this tenant.
func (t *Tenant) AllowN(ctx context.Context, cost int64) (d Decision, err error) {
	err = t.decide(ctx, cost, &d)
	return d, err
}

// decide is Limiter.decide for this tenant.
func (t *Tenant) decide(ctx context.Context, cost int64, d *Decision) error {
	l := t.limiter
	e := t.entry.Load()
	if l.fixed != nil && e != nil && cost > 0 && l.fast(e, l.fixed, cost, d) {
		return nil
	}
	limit, err := l.admit(ctx, t.name, cost)
	if err != nil {
		return err
	}
	if l.fixed == nil && e != nil && l.fast(e, &limit, cost, d) {
		l.cfg.Observer.decided(ctx, t.name, cost, d)
		return nil
	}
	err = l.slow(ctx, t.name, limit, cost, d)
	t.entry.Store(l.tenants.load(t.name))
	if err == nil {
		l.cfg.Observer.decided(ctx, t.name, cost, d)
	}
	return err
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

// tenant is what is kept of a tenant in memory, in three cache lines, of which most calls need the first.
type tenant struct {
	holder lease.Holder
	slow   callsSlow
}

func (t *tenant) name() string { return t.holder.Tenant() }

// tenants is the bounded set of tenants in memory. Lookups are lock-free; when it is full, a new tenant evicts one that was
// not used since the clock hand last passed it (the CLOCK algorithm of Corbató, 1968). Who was not used for a whole round of the
// sweep, one LeaseTTL long and more, goes too, once its share for an outage is full again: such a tenant has no lease any more,
// and its demand is too small for one, so all that is lost is memory.
type tenants struct {
	limiter *Limiter
	byName  table

	mu struct {
		sync.Mutex
		ring    []*tenant
		hand    int
		sweep   *time.Timer   // set while there are tenants
		next    int           // where in the ring the sweep goes on
		todo    int           // of its round
		pace    time.Duration // between two of its steps
		evicted int64         // to make room
		idle    int64         // by the sweep
		retired spent         // of tenants that are gone
	}
}

// sweepStep is how many tenants one step of the sweep looks at, so that a new tenant waits for no more than that.
const sweepStep = 128

// maxSteps is how far the hand goes for one eviction before it takes whom it meets, so that no call waits for a search.
const maxSteps = 64

func (ts *tenants) load(name string) *tenant { return ts.byName.load(name) }

func (ts *tenants) get(name string, limit quota.Limit) *tenant {
	if t := ts.load(name); t != nil {
		return t
	}
	l := ts.limiter
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.load(name); t != nil {
		return t
	}
	t := new(tenant)
	l.pool.Init(&t.holder, strings.Clone(lease.TenantName(name)), limit) // not to pin a request that name is a part of
	if len(ts.mu.ring) < l.cfg.MaxTenants {
		ts.mu.ring = append(ts.mu.ring, t)
	} else {
		i := ts.victimLocked()
		ts.evictLocked(ts.mu.ring[i])
		l.cfg.Observer.evicted(ts.mu.ring[i].name())
		ts.mu.evicted++
		ts.mu.ring[i] = t
	}
	ts.byName.put(t)
	if l.closed.Load() { // Close may have passed over it
		t.holder.Close()
	} else if ts.mu.sweep == nil {
		ts.mu.sweep = time.AfterFunc(l.cfg.LeaseTTL, ts.sweep)
	}
	return t
}

// sweep is one step: it evicts tenants that were not used since it last passed them. The last one in the ring takes the place of
// one that goes.
func (ts *tenants) sweep() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	m := &ts.mu
	if ts.limiter.closed.Load() { // it was about to begin when Close stopped it
		m.sweep = nil
		return
	}
	if ts.limiter.pool.StoreState().Open { // what is left of a share in an outage is not forgotten
		m.sweep.Reset(ts.limiter.cfg.LeaseTTL)
		return
	}
	if m.todo == 0 { // a round begins, which is to take one LeaseTTL
		m.next, m.todo = 0, len(m.ring)
		m.pace = max(ts.limiter.cfg.LeaseTTL/time.Duration(1+m.todo/sweepStep), time.Millisecond)
	}
	for n := min(sweepStep, m.todo); n > 0; n-- {
		m.todo--
		if t := m.ring[m.next]; t.holder.Used() || !t.holder.Idle() {
			m.next++
			continue
		}
		ts.evictLocked(m.ring[m.next])
		m.idle++
		last := len(m.ring) - 1
		m.ring[m.next], m.ring[last] = m.ring[last], nil
		m.ring = m.ring[:last]
	}
	m.hand = min(m.hand, max(0, len(m.ring)-1))
	if len(m.ring) == 0 {
		m.ring, m.todo, m.sweep = nil, 0, nil
		return
	}
	m.sweep.Reset(m.pace)
}

// stop ends the sweep.
func (ts *tenants) stop() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.mu.sweep != nil {
		ts.mu.sweep.Stop()
	}
}

func (ts *tenants) victimLocked() int {
	ring := ts.mu.ring
	for range maxSteps {
		i := ts.mu.hand
		ts.mu.hand = (i + 1) % len(ring)
		if !ring[i].holder.Used() {
			return i
		}
	}
	return ts.mu.hand
}

// evictLocked forgets t. It is retired first: Close must find it until nothing is left to be done for it.
func (ts *tenants) evictLocked(t *tenant) {
	tokens, calls, refused := t.holder.Retire()
	ts.byName.remove(t)
	ts.mu.retired.add(tokens, calls, refused)
}

// holders yields the holders of all tenants.
func (ts *tenants) holders(yield func(*lease.Holder) bool) {
	for _, t := range ts.all() {
		if !yield(&t.holder) {
			return
		}
	}
}

// all are the tenants in memory.
func (ts *tenants) all() []*tenant {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Clone(ts.mu.ring)
}
