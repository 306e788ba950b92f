package leaselimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Field cases of group 7 at the limiter: limits that change while it runs, with the cache of quota before the source.

const cacheTTL = 30 * time.Second

// cached is limiters over one store whose limits come from a cache each, and the limit that its source answers with.
type cached struct {
	t     *testing.T
	limit quota.Limit
	lims  []*leaselimit.Limiter
}

func newCached(t *testing.T, store lease.Store, n int, limit quota.Limit, cfg leaselimit.Config) *cached {
	t.Helper()
	c := &cached{t: t, limit: limit}
	for range n {
		cache, err := quota.NewCache(quota.SourceFunc(func(context.Context, string) (quota.Limit, error) {
			return c.limit, nil
		}), quota.CacheOptions{TTL: cacheTTL})
		require.NoError(t, err)
		cfg.Limits = cache
		c.lims = append(c.lims, newLimiter(t, store, cfg))
	}
	return c
}

// learn changes the limit and lets every replica learn of it, by a call now and then, within the TTL and 5 s. It reports what passed
// meanwhile.
func (c *cached) learn(limit quota.Limit) (passed int) {
	c.limit = limit
	for range int((cacheTTL + 5*time.Second) / (5 * time.Second)) {
		time.Sleep(5 * time.Second)
		for _, l := range c.lims {
			passed += calls(c.t, l, "acme", 1)
		}
	}
	return passed
}

// spendAll makes n calls in each replica at one moment.
func (c *cached) spendAll(n int) (passed int) {
	for range n {
		for _, l := range c.lims {
			passed += calls(c.t, l, "acme", 1)
		}
	}
	return passed
}

func TestQC1_ANewLimitIsInForceInEveryReplica(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCached(t, membucket.New(), 3, quota.PerSecond(10, 10), leaselimit.Config{Exact: true})
		c.spendAll(100)
		c.learn(quota.PerSecond(100, 100))
		c.spendAll(100)
		passed := 0
		for range 1000 { // ten seconds of the new rate, evenly over the replicas
			time.Sleep(10 * time.Millisecond)
			passed += c.spendAll(1)
		}
		assert.LessOrEqual(t, passed, 1000)
		assert.GreaterOrEqual(t, passed, 990)
	})
}

// QC2, QC8: a cut takes what is in the bucket and what is leased, and what is refilled from then on is the new rate's.
func TestQC2_ACutTakesTokensAndLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		c := newCached(t, store, 4, quota.PerSecond(1, 1000), leaselimit.Config{LeaseSize: 50, Replicas: 4, Exact: true})
		c.spendAll(1)
		var held int64
		for _, l := range c.lims {
			held += l.Stats().TokensHeld
		}
		require.Greater(t, held, int64(150))
		cut := quota.Limit{Capacity: 10, Refill: 1, Per: 10 * time.Second}
		c.learn(cut)
		held = 0
		for _, l := range c.lims {
			held += l.Stats().TokensHeld
		}
		assert.LessOrEqual(t, held, int64(10), "leases go with the limit that they are of")
		assert.LessOrEqual(t, c.spendAll(100), 10)
		for range 10 { // periods
			time.Sleep(10 * time.Second)
			assert.LessOrEqual(t, c.spendAll(5), 2)
		}
		_, err := c.lims[0].Peek(t.Context(), "acme")
		require.NoError(t, err)
		passed := 0
		for range 100 {
			time.Sleep(10 * time.Second)
			passed += c.spendAll(2)
		}
		assert.InDelta(t, 100, passed, 6, "refills go on")
	})
}

// QC4: a hundred reloads of the limit give no token, whatever the limits are.
func TestQC4_AHundredReloadsGiveNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCached(t, membucket.New(), 2, still(10), leaselimit.Config{})
		passed := c.spendAll(1)
		for i := range 100 {
			passed += c.learn(still(10 + int64(i%7)*10))
		}
		assert.Equal(t, 10, passed+c.spendAll(20))
	})
}

// QC6: what a replica knows of the old limit refuses nobody under the new one.
func TestQC6_ARaiseIsInForceWithinTheTTLOfTheCache(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCached(t, membucket.New(), 2, quota.Limit{Capacity: 5, Refill: 1, Per: time.Hour}, leaselimit.Config{})
		c.spendAll(20)
		d := call(t, c.lims[0], "acme", 1)
		require.Greater(t, d.RetryAfter, 10*time.Minute)
		c.limit = quota.PerSecond(1000, 1000)
		begin := time.Now()
		for !call(t, c.lims[0], "acme", 1).Allowed {
			require.Less(t, time.Since(begin), cacheTTL+5*time.Second)
			time.Sleep(time.Second)
		}
	})
}

// QC9 and time that has passed: it is priced at the rate that stood, in a raise and in a cut.
func TestTimeThatHasPassedIsNotPricedAgain(t *testing.T) {
	for name, tt := range map[string]struct{ was, is quota.Limit }{
		"a raise": {quota.Limit{Capacity: 1000, Refill: 1, Per: time.Minute}, quota.PerSecond(10, 1000)},
		"a cut":   {quota.PerSecond(10, 1000), quota.Limit{Capacity: 1000, Refill: 1, Per: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := membucket.New()
				limit := tt.was
				lim := newLimiter(t, store, leaselimit.Config{Limits: quota.SourceFunc(
					func(context.Context, string) (quota.Limit, error) { return limit, nil })})
				require.True(t, call(t, lim, "acme", 1000).Allowed)
				time.Sleep(time.Minute)
				want := min(1000, int64(tt.was.PerMillisecond()*60_000+1e-6))
				limit = tt.is
				assert.Equal(t, want, left(t, lim), "peek")
				assert.True(t, call(t, lim, "acme", want).Allowed)
				assert.False(t, call(t, lim, "acme", 1).Allowed)
			})
		})
	}
}

// FR12: limited, unlimited, limited: the unlimited are no load on the store, and come back to the bucket that they left.
func TestLimitedUnlimitedLimited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		store := &takeTap{Store: s}
		c := newCached(t, store, 1, still(10), leaselimit.Config{Exact: true})
		assert.Equal(t, 4, c.spendAll(4))
		c.learn(quota.Unlimited)
		time.Sleep(time.Minute) // leases go home
		asked := len(s.draws()) + len(s.returns())
		lim := c.lims[0]
		assert.Equal(t, 1000, c.spendAll(1000))
		d, err := lim.Peek(t.Context(), "acme")
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.True(t, d.Limit.IsUnlimited())
		require.NoError(t, lim.Reset(t.Context(), "acme"))
		e, err := lim.Estimate(t.Context(), "acme", 7)
		require.NoError(t, err)
		require.NoError(t, e.Settle(t.Context(), 100))
		d = all(t, c.lims, 5)
		assert.True(t, d.Allowed)
		assert.Equal(t, asked, len(s.draws())+len(s.returns())+len(store.takes), "asks nothing")

		c.learn(still(10))
		c.spendAll(20)
		assert.Zero(t, left(t, lim), "what was spent before is spent")
		assert.Equal(t, int64(10), lim.Stats().Allowed()-lim.Stats().AllowedUnlimited)
	})
}

// FR5: Peek spends nothing and creates no key. FR4: Reset fills one tenant up, in force everywhere within 5 s of it and a call.
func TestPeekAndResetOnRedis(t *testing.T) {
	rdb := redistest.Client(t)
	prefix := redistest.Prefix(t)
	cfg := limited(quota.Limit{Capacity: 10, Refill: 1, Per: time.Hour})
	cfg.StoreTimeout = 10 * time.Second
	lim := newLimiter(t, redisbucket.New(rdb, redisbucket.WithPrefix(prefix)), cfg)
	ctx := context.Background()
	for range 20 {
		d, err := lim.Peek(ctx, "acme")
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.Equal(t, int64(10), d.Remaining)
	}
	keys, err := rdb.Keys(ctx, prefix+"*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys, "no key")
	for _, tenant := range []string{"acme", "other"} {
		_, err := lim.AllowN(ctx, tenant, 8)
		require.NoError(t, err)
	}
	require.NoError(t, lim.Reset(ctx, "acme"))
	d, err := lim.Peek(ctx, "acme")
	require.NoError(t, err)
	assert.Equal(t, int64(10), d.Remaining)
	d, err = lim.Peek(ctx, "other")
	require.NoError(t, err)
	assert.Equal(t, int64(2), d.Remaining, "one tenant's alone")
}

func TestResetIsInForceEverywhereWithinFiveSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		limit := quota.Limit{Capacity: 100, Refill: 1, Per: time.Hour}
		var lims []*leaselimit.Limiter
		for range 4 {
			lims = append(lims, newLimiter(t, store, limited(limit)))
		}
		for _, l := range lims {
			calls(t, l, "acme", 200)
			require.False(t, call(t, l, "acme", 1).Allowed)
		}
		require.NoError(t, lims[0].Reset(t.Context(), "acme"))
		time.Sleep(5*time.Second + ms)
		for i, l := range lims {
			assert.True(t, call(t, l, "acme", 1).Allowed, "replica %d", i)
		}
	})
}
