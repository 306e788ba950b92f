package leaselimit_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Field cases of group 6 at the limiter: what shares a bucket and what does not.

func TestCK8_AClassIsABucketOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		class := func(name string) *leaselimit.Limiter {
			cfg := limited(still(10))
			cfg.Class = name
			return newLimiter(t, store, cfg)
		}
		first, export, unnamed := class("default"), class("export"), class("")
		assert.Equal(t, 10, calls(t, first, "acme", 12))
		assert.Equal(t, 10, calls(t, export, "acme", 12), "another class")
		assert.Equal(t, 0, calls(t, unnamed, "acme", 12), "no name is the default's name")
		assert.Equal(t, 10, calls(t, unnamed, "other", 12), "another tenant")
	})
}

func TestCK11_ATenantOfAMegabyteWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		lim := newLimiter(t, s, limited(still(10)))
		long := strings.Repeat("x", 1<<20)
		assert.Equal(t, 10, calls(t, lim, long, 12))
		assert.Equal(t, 10, calls(t, lim, long+"y", 12), "and is not another that begins alike")
		for _, d := range s.draws() {
			assert.Less(t, len(d.req.Key.Tenant), 300, "bounded in memory and in the store")
		}
		assert.Equal(t, 0, calls(t, newLimiter(t, s, limited(still(10))), long, 3), "the same in every replica")
	})
}

func TestCK13_EveryOperationKeepsToThePrefix(t *testing.T) {
	rdb := redistest.Client(t)
	prefix := redistest.Prefix(t)
	tenant := "of-" + prefix
	cfg := limited(quota.Limit{Capacity: 10, Refill: 1, Per: time.Hour})
	cfg.StoreTimeout = 10 * time.Second
	lim := newLimiter(t, redisbucket.New(rdb, redisbucket.WithPrefix(prefix)), cfg)
	ctx := context.Background()
	d, err := lim.AllowN(ctx, tenant, 7)
	require.NoError(t, err)
	require.True(t, d.Allowed)

	keys, err := rdb.Keys(ctx, prefix+"*").Result()
	require.NoError(t, err)
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == prefix+":{%replicas}:default" }) // a background write
	assert.Equal(t, []string{prefix + ":{" + tenant + "}:default"}, keys)

	d, err = lim.Peek(ctx, tenant)
	require.NoError(t, err)
	assert.Equal(t, int64(3), d.Remaining, "peek sees what allow took")
	require.NoError(t, lim.Reset(ctx, tenant))
	d, err = lim.Peek(ctx, tenant)
	require.NoError(t, err)
	assert.Equal(t, int64(10), d.Remaining, "and what reset gave")
	require.NoError(t, lim.Close(ctx))
	n, err := rdb.Exists(ctx, "rl:{"+tenant+"}:default").Result()
	require.NoError(t, err)
	assert.Zero(t, n, "nothing under the default prefix")
}

// The scope of a limiter: one bucket for all limiters of a class on a store, whatever routes they stand on. While the store
// is away, each limiter has its own share.
func TestCK14_TwoLimitersOfAClassAreOneLimitButInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		one, two := newTapOn(store), newTapOn(store)
		cfg := limited(still(40))
		cfg.Replicas, cfg.Exact = 2, true
		first, second := newLimiter(t, one, cfg), newLimiter(t, two, cfg)
		admitted := 0
		for range 40 {
			admitted += calls(t, first, "acme", 1) + calls(t, second, "acme", 1)
		}
		assert.LessOrEqual(t, admitted, 40)
		assert.GreaterOrEqual(t, admitted, 40-10, "a share may be out")

		one.onAcquire(down)
		two.onAcquire(down)
		time.Sleep(10 * time.Second) // nothing is known any more
		assert.Equal(t, 20, calls(t, first, "fresh", 50), "half of the limit each")
		assert.Equal(t, 20, calls(t, second, "fresh", 50))
	})
}
