package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/maypok86/otter/v2"
)

// What a warm lookup of a limit takes: quota.Cache, otter with the refresh and expiry that the cache would need of it, otter
// without, and a sync.Map that does nothing but keep.
func BenchmarkLimitLookup(b *testing.B) {
	expiring := &otter.Options[string, quota.Limit]{
		ExpiryCalculator:  otter.ExpiryWriting[string, quota.Limit](time.Hour),
		RefreshCalculator: otter.RefreshWriting[string, quota.Limit](45 * time.Second),
	}
	compare(b, peer.Work{Allow: true}, []int{1, many}, []int{1},
		lookups("quota.Cache", inCache),
		lookups("otter", inOtter(expiring)),
		lookups("otter-without-time", inOtter(&otter.Options[string, quota.Limit]{})),
		lookups("sync.Map", inSyncMap))
}

// What a warm lookup adds to a decision.
func BenchmarkAllowWithCache(b *testing.B) {
	limit := quota.PerSecond(1, peer.Plenty)
	compare(b, peer.Work{Allow: true}, []int{1, many}, []int{1},
		allowing("fixed", func() (quota.Source, func(), error) { return quota.Fixed(limit), func() {}, nil }),
		allowing("func", func() (quota.Source, func(), error) { return always(limit), func() {}, nil }),
		allowing("cache", func() (quota.Source, func(), error) {
			c, err := quota.NewCache(always(limit), quota.CacheOptions{})
			return c, c.Close, err
		}))
}

// keeper answers with the limit of a tenant, whose name and limit it was given.
type keeper struct {
	get func(tenant string) (quota.Limit, bool)
	end func()
}

func lookups(name string, of func(names []string, limit quota.Limit) (keeper, error)) peer.Peer {
	return peer.Peer{Name: name, New: func(w peer.Work) (*peer.Limiter, error) {
		names, limit := w.Names(), quota.PerSecond(2, 20)
		k, err := of(names, limit)
		if err != nil {
			return nil, err
		}
		return &peer.Limiter{
			Decide: func(i int) (bool, error) {
				got, ok := k.get(names[i])
				return ok && got == limit, nil
			},
			Close: func() error { k.end(); return nil },
		}, nil
	}}
}

// allowing has one lease for each tenant, which is more than the benchmark spends.
func allowing(name string, source func() (quota.Source, func(), error)) peer.Peer {
	return peer.Peer{Name: name, New: func(w peer.Work) (*peer.Limiter, error) {
		limits, end, err := source()
		if err != nil {
			return nil, err
		}
		lim, err := leaselimit.New(membucket.New(), leaselimit.Config{
			Limits: limits, LeaseShare: 1, LeaseSize: peer.Plenty / 4, LeaseTTL: time.Hour, Replicas: 1, StoreTimeout: peer.Patience,
		})
		if err != nil {
			return nil, err
		}
		names := w.Names()
		return &peer.Limiter{
			Decide: func(i int) (bool, error) {
				d, err := lim.Allow(peer.Ctx, names[i])
				return d.Allowed, err
			},
			Close: func() error { defer end(); return lim.Close(peer.Ctx) },
		}, nil
	}}
}

func always(limit quota.Limit) quota.Source {
	return quota.SourceFunc(func(context.Context, string) (quota.Limit, error) { return limit, nil })
}

func inCache(names []string, limit quota.Limit) (keeper, error) {
	c, err := quota.NewCache(always(limit), quota.CacheOptions{})
	if err != nil {
		return keeper{}, err
	}
	for _, name := range names {
		if _, err := c.Limit(peer.Ctx, name); err != nil {
			return keeper{}, err
		}
	}
	get := func(tenant string) (quota.Limit, bool) {
		got, err := c.Limit(peer.Ctx, tenant)
		return got, err == nil
	}
	return keeper{get, c.Close}, nil
}

func inOtter(opts *otter.Options[string, quota.Limit]) func([]string, quota.Limit) (keeper, error) {
	return func(names []string, limit quota.Limit) (keeper, error) {
		opts.MaximumSize = 100_000
		c, err := otter.New(opts)
		if err != nil {
			return keeper{}, err
		}
		for _, name := range names {
			c.Set(name, limit)
		}
		return keeper{c.GetIfPresent, func() { c.StopAllGoroutines() }}, nil
	}
}

func inSyncMap(names []string, limit quota.Limit) (keeper, error) {
	var m sync.Map
	for _, name := range names {
		m.Store(name, &limit)
	}
	return keeper{func(tenant string) (quota.Limit, bool) {
		if v, ok := m.Load(tenant); ok {
			return *v.(*quota.Limit), true
		}
		return quota.Limit{}, false
	}, func() {}}, nil
}
