package peer

import (
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
)

// This library, deciding from memory: a lease in hand, or a tenant known to be empty.
var (
	ByName       = Peer{Name: "leaselimit", New: func(w Work) (*Limiter, error) { return fromMemory(w, 0, byName) }}
	ByHandle     = Peer{Name: "leaselimit-handle", New: func(w Work) (*Limiter, error) { return fromMemory(w, 0, byHandle) }}
	CoarseName   = Peer{Name: "leaselimit-coarse", New: func(w Work) (*Limiter, error) { return fromMemory(w, coarse, byName) }}
	CoarseHandle = Peer{
		Name: "leaselimit-coarse-handle", New: func(w Work) (*Limiter, error) { return fromMemory(w, coarse, byHandle) },
	}
)

// This library over Redis: as it comes, and with a limit of which nothing may be leased ahead, so that every call waits.
var (
	OverRedis = Peer{Name: "leaselimit", New: func(w Work) (*Limiter, error) {
		return overRedis(w, leaselimit.Config{}, 1)
	}}
	Waiting = Peer{Name: "leaselimit-waiting", New: func(w Work) (*Limiter, error) {
		return overRedis(w, leaselimit.Config{MaxHold: 1}, 2) // a cost of 2 is never covered by a hold of 1
	}}
)

const coarse = time.Millisecond

// Patience is a StoreTimeout that is not reached on a busy machine: no failure policy gets to decide here.
const Patience = 10 * time.Second

func (w Work) limit() quota.Limit {
	if w.Allow {
		return quota.PerSecond(Plenty, Plenty)
	}
	return quota.Limit{Capacity: 1, Refill: 1, Per: Long}
}

// fromMemory has leases so large and so long that they outlast every benchmark.
func fromMemory(w Work, clock time.Duration, decide deciding) (*Limiter, error) {
	cfg := leaselimit.Config{
		Limits: quota.Fixed(w.limit()), LeaseTTL: time.Hour, Replicas: 1, StoreTimeout: Patience, CoarseClock: clock,
		MaxTenants: 2*w.Tenants + 1,
	}
	if w.Allow {
		cfg.LeaseSize = Plenty / 4
	}
	lim, err := leaselimit.New(membucket.New(), cfg)
	if err != nil {
		return nil, err
	}
	return decide(lim, w, 1), nil
}

func overRedis(w Work, cfg leaselimit.Config, cost int64) (*Limiter, error) {
	if !w.Allow {
		cost = 1
	}
	cfg.Limits, cfg.Replicas, cfg.StoreTimeout = quota.Fixed(w.limit()), 1, Patience
	rdb := goRedis(w)
	lim, err := leaselimit.New(redisbucket.New(rdb), cfg)
	if err != nil {
		return nil, err
	}
	l := byName(lim, w, cost)
	end := l.Close
	l.Close = func() error { return closeAll(end, rdb.Close) }
	return l, nil
}

type deciding func(lim *leaselimit.Limiter, w Work, cost int64) *Limiter

func byName(lim *leaselimit.Limiter, w Work, cost int64) *Limiter {
	names := w.Names()
	return &Limiter{
		Decide: func(i int) (bool, error) { return passed(lim.AllowN(Ctx, names[i], cost)) },
		Close:  func() error { return lim.Close(Ctx) },
	}
}

func byHandle(lim *leaselimit.Limiter, w Work, cost int64) *Limiter {
	handles := make([]*leaselimit.Tenant, w.Tenants)
	for i, name := range w.Names() {
		handles[i] = lim.Tenant(name)
	}
	return &Limiter{
		Decide: func(i int) (bool, error) { return passed(handles[i].AllowN(Ctx, cost)) },
		Close:  func() error { return lim.Close(Ctx) },
	}
}

// passed takes a decision of the failure policy for none.
func passed(d leaselimit.Decision, err error) (bool, error) {
	if d.Source == leaselimit.SourceFallback {
		return d.Allowed, ErrWrong
	}
	return d.Allowed, err
}

// goRedis is the client of all peers that use go-redis: room for as many callers at once as a benchmark has.
func goRedis(w Work) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: w.Addr, PoolSize: 64})
}

func closeAll(closers ...func() error) error {
	var first error
	for _, c := range closers {
		if err := c(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
