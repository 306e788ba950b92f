package leaselimit_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Field cases of group 11: what callers and configurations get wrong.

func TestConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*leaselimit.Config)
		field string // that the error names; "" if New succeeds
	}{
		"defaults":                {func(*leaselimit.Config) {}, ""},
		"no limits":               {func(c *leaselimit.Config) { c.Limits = nil }, "Limits"},
		"class with a colon":      {func(c *leaselimit.Config) { c.Class = "a:b" }, "Class"},
		"class with a brace":      {func(c *leaselimit.Config) { c.Class = "{a" }, "Class"},
		"class of letters":        {func(c *leaselimit.Config) { c.Class = "Export-2_x.y" }, ""},
		"class not ASCII":         {func(c *leaselimit.Config) { c.Class = "ü" }, "Class"},
		"class too long":          {func(c *leaselimit.Config) { c.Class = string(make([]byte, 129)) }, "Class"},
		"overshoot NaN":           {func(c *leaselimit.Config) { c.MaxOvershoot = math.NaN() }, "MaxOvershoot"},
		"overshoot Inf":           {func(c *leaselimit.Config) { c.MaxOvershoot = math.Inf(1) }, "MaxOvershoot"},
		"overshoot negative":      {func(c *leaselimit.Config) { c.MaxOvershoot = -0.1 }, "MaxOvershoot"},
		"overshoot above 1":       {func(c *leaselimit.Config) { c.MaxOvershoot = 1.1 }, "MaxOvershoot"},
		"overshoot 1":             {func(c *leaselimit.Config) { c.MaxOvershoot = 1 }, ""},
		"exact with a budget":     {func(c *leaselimit.Config) { c.Exact, c.MaxOvershoot = true, 0.1 }, "MaxOvershoot"},
		"exact":                   {func(c *leaselimit.Config) { c.Exact = true }, ""},
		"share NaN":               {func(c *leaselimit.Config) { c.LeaseShare = math.NaN() }, "LeaseShare"},
		"share negative":          {func(c *leaselimit.Config) { c.LeaseShare = -1 }, "LeaseShare"},
		"share above 1":           {func(c *leaselimit.Config) { c.LeaseShare = 1.01 }, "LeaseShare"},
		"TTL too short":           {func(c *leaselimit.Config) { c.LeaseTTL = 9 * ms }, "LeaseTTL"},
		"TTL negative":            {func(c *leaselimit.Config) { c.LeaseTTL = -time.Second }, "LeaseTTL"},
		"TTL too long":            {func(c *leaselimit.Config) { c.LeaseTTL = time.Hour + 1 }, "LeaseTTL"},
		"shortest TTL":            {func(c *leaselimit.Config) { c.LeaseTTL = 10 * ms }, ""},
		"size negative":           {func(c *leaselimit.Config) { c.LeaseSize = -1 }, "LeaseSize"},
		"hold negative":           {func(c *leaselimit.Config) { c.MaxHold = -1 }, "MaxHold"},
		"hold below size":         {func(c *leaselimit.Config) { c.LeaseSize, c.MaxHold = 5, 4 }, "MaxHold"},
		"timeout negative":        {func(c *leaselimit.Config) { c.StoreTimeout = -1 }, "StoreTimeout"},
		"timeout of a TTL":        {func(c *leaselimit.Config) { c.LeaseTTL, c.StoreTimeout = ms*20, ms*20 }, "StoreTimeout"},
		"no such policy":          {func(c *leaselimit.Config) { c.OnFailure = 3 }, "OnFailure"},
		"replicas negative":       {func(c *leaselimit.Config) { c.Replicas = -1 }, "Replicas"},
		"tenants negative":        {func(c *leaselimit.Config) { c.MaxTenants = -1 }, "MaxTenants"},
		"coarse clock too fine":   {func(c *leaselimit.Config) { c.CoarseClock = 1 }, "CoarseClock"},
		"coarse clock too coarse": {func(c *leaselimit.Config) { c.CoarseClock = 4 * time.Second }, "CoarseClock"},
		"AV3: period 0":           {func(c *leaselimit.Config) { c.Limits = quota.Fixed(quota.Limit{Capacity: 1, Refill: 1}) }, "Per"},
		"AV3: negative refill":    {func(c *leaselimit.Config) { c.Limits = quota.Fixed(quota.PerSecond(-1, 1)) }, "Refill"},
		"AR16: 2^53":              {func(c *leaselimit.Config) { c.Limits = quota.Fixed(still(1 << 53)) }, "Capacity"},
		"AR20: MaxInt64/2":        {func(c *leaselimit.Config) { c.Limits = quota.Fixed(still(math.MaxInt64 / 2)) }, "Capacity"},
		"unlimited":               {func(c *leaselimit.Config) { c.Limits = quota.Fixed(quota.Unlimited) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := limited(quota.PerSecond(1, 10))
			tt.spoil(&cfg)
			lim, err := leaselimit.New(membucket.New(), cfg)
			if tt.field == "" {
				require.NoError(t, err)
				require.NoError(t, lim.Close(t.Context()))
				return
			}
			require.Error(t, err)
			assert.Nil(t, lim)
			assert.Contains(t, err.Error(), tt.field+" is ")
			assert.Contains(t, err.Error(), "must be ")
			assert.Contains(t, err.Error(), "leaselimit: ")
		})
	}
	_, err := leaselimit.New(nil, limited(still(1)))
	require.Error(t, err)

	cfg := limited(still(1))
	cfg.LeaseTTL, cfg.Replicas, cfg.LeaseShare = -1, -1, 7
	_, err = leaselimit.New(membucket.New(), cfg)
	for _, field := range []string{"LeaseTTL", "Replicas", "LeaseShare"} {
		assert.ErrorContains(t, err, field, "all that is wrong is said at once")
	}
}

func TestAV1_ANegativeCostAddsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		lim := newLimiter(t, s, limited(still(10)))
		require.Equal(t, 10, calls(t, lim, "acme", 10))
		asked := len(s.draws())
		for _, cost := range []int64{0, -1, -100, math.MinInt64} {
			_, err := lim.AllowN(t.Context(), "acme", cost)
			require.ErrorIs(t, err, leaselimit.ErrInvalidCost)
			_, err = lim.Tenant("acme").AllowN(t.Context(), cost)
			require.ErrorIs(t, err, leaselimit.ErrInvalidCost)
			require.ErrorIs(t, lim.Wait(t.Context(), "acme", cost), leaselimit.ErrInvalidCost)
		}
		assert.Len(t, s.draws(), asked)
		assert.False(t, call(t, lim, "acme", 1).Allowed)
		assert.Equal(t, int64(12), lim.Stats().Errors)
	})
}

// A limit that turns out invalid at call time is an error of that call; nothing is admitted and nothing panics.
func TestAV3_AnInvalidLimitOfASourceIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		var limit quota.Limit
		gone := errors.New("gone")
		var fails error
		lim := newLimiter(t, s, leaselimit.Config{Limits: quota.SourceFunc(func(context.Context, string) (quota.Limit, error) {
			return limit, fails
		})})
		for _, limit = range []quota.Limit{
			{Capacity: 10, Refill: 1},
			{Capacity: 10, Refill: 1, Per: -1},
			{Capacity: -1},
			{Capacity: 1 << 60},
			{Capacity: 10, Refill: math.MinInt64, Per: 1},
		} {
			d, err := lim.Allow(t.Context(), "acme")
			require.ErrorIs(t, err, quota.ErrInvalid, "%+v", limit)
			assert.Equal(t, leaselimit.Decision{}, d)
			_, err = lim.Tenant("acme").Allow(t.Context())
			require.ErrorIs(t, err, quota.ErrInvalid)
			_, err = lim.Peek(t.Context(), "acme")
			require.ErrorIs(t, err, quota.ErrInvalid)
			require.ErrorIs(t, lim.Reset(t.Context(), "acme"), quota.ErrInvalid)
			assert.Zero(t, lim.Bound("acme"))
		}
		limit, fails = still(10), gone
		_, err := lim.Allow(t.Context(), "acme")
		require.ErrorIs(t, err, gone)
		assert.Empty(t, s.draws())
		fails = nil
		assert.True(t, call(t, lim, "acme", 1).Allowed)
	})
}

// AV4, AV17, QC16: a capacity of 0 refuses everything, with the store and without; only Unlimited lets everything pass.
func TestAV17_ACapacityOfZeroRefusesEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, policy := range []leaselimit.FailurePolicy{leaselimit.FailLocal, leaselimit.FailOpen, leaselimit.FailClosed} {
			for _, away := range []bool{false, true} {
				for _, limit := range []quota.Limit{{}, quota.PerSecond(10, 0)} {
					s := newTap()
					if away {
						s.onAcquire(down)
					}
					cfg := limited(limit)
					cfg.OnFailure = policy
					lim := newLimiter(t, s, cfg)
					for range 20 {
						d := call(t, lim, "acme", 1)
						assert.False(t, d.Allowed)
						assert.Equal(t, leaselimit.Never, d.RetryAfter)
						assert.Zero(t, d.Remaining)
						time.Sleep(ms)
					}
					d, err := lim.Peek(t.Context(), "acme")
					require.NoError(t, err)
					assert.False(t, d.Allowed)
					var refused *leaselimit.RefusedError
					require.ErrorAs(t, lim.Wait(t.Context(), "acme", 1), &refused)
					assert.Empty(t, s.draws())
				}
			}
		}
	})
}

func TestUnlimitedAsksNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(down)
		lim := newLimiter(t, s, limited(quota.Unlimited))
		for range 100 {
			d := call(t, lim, "acme", math.MaxInt64)
			assert.True(t, d.Allowed)
			assert.False(t, d.Degraded())
			assert.Equal(t, int64(math.MaxInt64), d.Remaining)
		}
		require.NoError(t, lim.Wait(t.Context(), "acme", 5))
		require.NoError(t, lim.Reset(t.Context(), "acme"))
		d, err := lim.Peek(t.Context(), "acme")
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.Empty(t, s.draws())
		st := lim.Stats()
		assert.Equal(t, int64(101), st.AllowedUnlimited)
		adds(t, st, 101)
	})
}

// The limit is in the store, so limiters that are built for each request still hold it, and leave nothing behind.
func TestAV7_ALimiterPerRequestStillHoldsTheLimit(t *testing.T) {
	store := membucket.New()
	admitted := 0
	for range 500 {
		lim, err := leaselimit.New(store, limited(still(30)))
		require.NoError(t, err)
		d, err := lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		if d.Allowed {
			admitted++
		}
		require.NoError(t, lim.Close(t.Context()))
	}
	assert.Equal(t, 30, admitted)
}

func TestAV8_ACostAboveTheCapacityIsNeverAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		limit := quota.PerSecond(1, 5)
		lim := newLimiter(t, s, limited(limit))
		for _, cost := range []int64{6, 1e6, math.MaxInt64} {
			d := call(t, lim, "acme", cost)
			assert.False(t, d.Allowed)
			assert.Equal(t, leaselimit.Never, d.RetryAfter)
			err := lim.Wait(t.Context(), "acme", cost)
			var refused *leaselimit.RefusedError
			require.ErrorAs(t, err, &refused)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
		}
		assert.Empty(t, s.draws(), "nothing to ask")
		assert.True(t, call(t, lim, "acme", 5).Allowed, "and nothing was spent")
		assert.Equal(t, int64(6), lim.Stats().RefusedNever)
	})
}

func TestAV12_TheEmptyTenantIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		lim := newLimiter(t, s, limited(still(10)))
		_, err := lim.Allow(t.Context(), "")
		require.ErrorIs(t, err, leaselimit.ErrInvalidTenant)
		_, err = lim.Tenant("").Allow(t.Context())
		require.ErrorIs(t, err, leaselimit.ErrInvalidTenant)
		_, err = lim.Peek(t.Context(), "")
		require.ErrorIs(t, err, leaselimit.ErrInvalidTenant)
		require.ErrorIs(t, lim.Wait(t.Context(), "", 1), leaselimit.ErrInvalidTenant)
		require.ErrorIs(t, lim.Reset(t.Context(), ""), leaselimit.ErrInvalidTenant)
		assert.Empty(t, s.draws())
		for _, tenant := range []string{" ", "\x00", "\xff\xfe", "{", "}", "a:b", "*", "\n"} {
			assert.True(t, call(t, lim, tenant, 10).Allowed, "%q is a tenant, of its own", tenant)
		}
	})
}

// A context that is done makes no decision, and costs nothing.
func TestADoneContextIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		lim := newLimiter(t, s, limited(still(10)))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d, err := lim.AllowN(ctx, "acme", 10)
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, leaselimit.Decision{}, d)
		assert.Empty(t, s.draws())
		assert.True(t, call(t, lim, "acme", 10).Allowed)
	})
}
