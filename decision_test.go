package leaselimit_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Field cases of groups 10 and 12: what a decision says, and what is counted.

func TestHP6_RemainingCountsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lim := newLimiter(t, newTap(), limited(still(3)))
		for _, left := range []int64{2, 1, 0} {
			d := call(t, lim, "acme", 1)
			assert.True(t, d.Allowed)
			assert.Equal(t, left, d.Remaining)
			assert.Zero(t, d.RetryAfter)
		}
		d := call(t, lim, "acme", 1)
		assert.False(t, d.Allowed)
		assert.Zero(t, d.Remaining)
		assert.Equal(t, leaselimit.Never, d.RetryAfter)
	})
}

// For a replica that is alone and a limit without refill, Remaining is exact however its tokens are leased.
func TestHP6_RemainingIsExactForOneReplica(t *testing.T) {
	for _, size := range []int64{0, 1, 7, 20} {
		bubble(t, func(t *testing.T) {
			cfg := limited(still(300))
			cfg.LeaseSize = size
			lim := newLimiter(t, newTap(), cfg)
			for left := int64(299); left >= 0; left-- {
				d := call(t, lim, "acme", 1)
				require.True(t, d.Allowed)
				require.Equal(t, left, d.Remaining, "size %d, by %v", size, d.Source)
				time.Sleep(ms)
			}
			require.False(t, call(t, lim, "acme", 1).Allowed)
		})
	}
}

func TestHP8_RemainingStaysInItsBounds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lim := newLimiter(t, newTap(), limited(quota.PerSecond(7, 5)))
		for i := range 2000 {
			d := call(t, lim, "acme", int64(1+i%10))
			require.GreaterOrEqual(t, d.Remaining, int64(0), "%v", d)
			require.LessOrEqual(t, d.Remaining, int64(5), "%v", d)
			require.GreaterOrEqual(t, d.RetryAfter, time.Duration(0))
			require.Equal(t, d.Allowed, d.RetryAfter == 0, "%v", d)
			p, err := lim.Peek(t.Context(), "acme")
			require.NoError(t, err)
			require.GreaterOrEqual(t, p.Remaining, int64(0))
			require.LessOrEqual(t, p.Remaining, int64(5))
			require.Equal(t, p.Allowed, p.Remaining >= 1)
			time.Sleep(time.Duration(i%50) * ms)
		}
	})
}

func TestOB5_LocalDecisionsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := limited(still(10))
		cfg.LeaseSize, cfg.MaxHold, cfg.LeaseShare, cfg.Replicas = 10, 10, 1, 1
		lim := newLimiter(t, newTap(), cfg)
		assert.Equal(t, 10, calls(t, lim, "acme", 100))
		st := lim.Stats()
		assert.Equal(t, int64(10), st.Allowed())
		assert.Equal(t, int64(90), st.Refused())
		assert.Equal(t, int64(1), st.AllowedStore)
		assert.Equal(t, int64(9), st.AllowedLease)
		assert.LessOrEqual(t, st.RefusedStore, int64(1))
		assert.GreaterOrEqual(t, st.RefusedPrecheck, int64(89))
		adds(t, st, 100)
	})
}

func TestOB6_AllowedRefusedAndErrorsAreAllCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(still(10))
		cfg.OnFailure = leaselimit.FailClosed
		lim := newLimiter(t, s, cfg)
		calls(t, lim, "acme", 100)
		for range 3 {
			_, err := lim.AllowN(t.Context(), "acme", 0)
			require.Error(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := lim.Allow(ctx, "other")
		require.Error(t, err)
		s.onAcquire(late(20 * ms))
		ctx, cancel = context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		_, err = lim.Allow(ctx, "third")
		require.Error(t, err)
		time.Sleep(time.Second)
		s.onAcquire(down)
		calls(t, lim, "fourth", 7)
		call(t, lim, "acme", 11) // above the capacity
		synctest.Wait()
		st := lim.Stats()
		assert.Equal(t, int64(5), st.Errors)
		assert.Equal(t, int64(7), st.RefusedFallback)
		assert.Equal(t, int64(1), st.RefusedNever)
		adds(t, st, 100+5+7+1)
	})
}

// Every source is named by the call that it decided.
func TestSources(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(still(30))
		cfg.LeaseSize, cfg.Replicas = 5, 1
		lim := newLimiter(t, s, cfg)
		assert.Equal(t, leaselimit.SourceStore, call(t, lim, "acme", 1).Source)
		assert.Equal(t, leaselimit.SourceLease, call(t, lim, "acme", 1).Source)
		assert.Equal(t, leaselimit.SourceStore, call(t, lim, "acme", 10).Source, "two leases do not cover it")
		require.True(t, call(t, lim, "third", 1).Allowed)
		drain(t, s, "third", still(30), 0) // by others, unseen
		d := call(t, lim, "third", 20)
		assert.Equal(t, leaselimit.SourceStore, d.Source)
		assert.False(t, d.Allowed)
		d = call(t, lim, "third", 20)
		assert.Equal(t, leaselimit.SourcePrecheck, d.Source)
		assert.False(t, d.Allowed)
		s.onAcquire(down)
		d = call(t, lim, "other", 1)
		assert.Equal(t, leaselimit.SourceFallback, d.Source)
		assert.True(t, d.Degraded())
		for source, name := range map[leaselimit.Source]string{
			0: "none", leaselimit.SourceLease: "lease", leaselimit.SourceStore: "store",
			leaselimit.SourcePrecheck: "precheck", leaselimit.SourceFallback: "fallback", 99: "none",
		} {
			assert.Equal(t, name, source.String())
		}
	})
}

func TestTheZeroDecisionRefuses(t *testing.T) {
	var d leaselimit.Decision
	assert.False(t, d.Allowed)
	assert.False(t, d.Degraded())
	assert.Equal(t, "refused by none, 0 of blocked left", d.String())
	d = leaselimit.Decision{Allowed: true, Shadowed: true, Source: leaselimit.SourceLease, Limit: still(5), Remaining: 2}
	assert.Equal(t, "allowed in shadow by lease, 2 of 5, no refill left", d.String())
	d = leaselimit.Decision{Source: leaselimit.SourceStore, Limit: still(5), RetryAfter: leaselimit.Never}
	assert.Equal(t, "refused by store, 0 of 5, no refill left, never again", d.String())
}

func TestShadowLetsPassAndCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(still(10))
		cfg.Shadow, cfg.OnFailure = true, leaselimit.FailClosed
		lim := newLimiter(t, s, cfg)
		shadowed := 0
		for range 30 {
			d := call(t, lim, "acme", 1)
			require.True(t, d.Allowed)
			if d.Shadowed {
				shadowed++
				assert.Zero(t, d.RetryAfter)
			}
		}
		assert.Equal(t, 20, shadowed)
		require.True(t, call(t, lim, "acme", 11).Shadowed)
		require.NoError(t, lim.Wait(t.Context(), "acme", 1))
		s.onAcquire(down)
		require.True(t, call(t, lim, "other", 1).Shadowed)
		st := lim.Stats()
		assert.Equal(t, int64(23), st.Shadowed)
		assert.Equal(t, int64(10), st.Allowed())
		assert.Equal(t, int64(23), st.Refused())
		adds(t, st, 33)
	})
}

func TestPeekSpendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(quota.PerSecond(1, 30))
		cfg.LeaseSize, cfg.Replicas = 5, 1
		lim := newLimiter(t, s, cfg)
		peek := func() leaselimit.Decision {
			d, err := lim.Peek(t.Context(), "acme")
			require.NoError(t, err)
			return d
		}
		assert.Equal(t, int64(30), peek().Remaining)
		require.True(t, call(t, lim, "acme", 1).Allowed)
		for range 100 {
			assert.Equal(t, int64(29), peek().Remaining, "24 in the store and 5 here")
		}
		require.Equal(t, 29, calls(t, lim, "acme", 60))
		d := peek()
		assert.False(t, d.Allowed)
		assert.InDelta(t, float64(time.Second), float64(d.RetryAfter), float64(ms))
		assert.Equal(t, leaselimit.SourceStore, d.Source)
	})
}

func TestBoundNamesItsInputs(t *testing.T) {
	bound := func(cfg leaselimit.Config) leaselimit.Bound { return newLimiter(t, membucket.New(), cfg).Bound("acme") }
	cfg := limited(still(37))
	assert.Equal(t, leaselimit.Bound{Tokens: 3, Limit: still(37), MaxOvershoot: 0.1, Share: 9}, bound(cfg))
	cfg.Exact = true
	assert.Equal(t, leaselimit.Bound{Limit: still(37), Share: 9}, bound(cfg))
	cfg = limited(still(30))
	cfg.MaxOvershoot, cfg.LeaseShare = 0.1, 1
	assert.Equal(t, int64(3), bound(cfg).Tokens, "a tenth of 30 is 3")
	assert.Equal(t, leaselimit.Bound{Limit: quota.Unlimited}, bound(limited(quota.Unlimited)))
}

// One line for each change of state, however many calls fail.
func TestOneLogLinePerChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newTap()
		cfg := limited(quota.PerSecond(100, 100))
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		lim := newLimiter(t, s, cfg)
		require.True(t, call(t, lim, "acme", 1).Allowed)
		assert.Empty(t, log.String())
		s.onAcquire(down)
		time.Sleep(30 * time.Second)
		for range 10_000 {
			d := call(t, lim, "acme", 1)
			require.True(t, d.Degraded())
			time.Sleep(ms)
		}
		assert.True(t, lim.Stats().Degraded)
		assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), log.String())
		assert.Contains(t, log.String(), "reason=refused")
		assert.Contains(t, log.String(), "policy=local")
		s.onAcquire(nil)
		time.Sleep(2 * time.Second)
		require.False(t, call(t, lim, "acme", 1).Degraded())
		assert.False(t, lim.Stats().Degraded)
		assert.Equal(t, 2, bytes.Count(log.Bytes(), []byte("\n")), log.String())
		assert.NotContains(t, log.String(), "acme", "tenants are not for logs")
	})
}

// Whoever reads a decision can tell which of a tenant's limits it is about.
func TestDecisionNamesItsClass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := limited(still(2))
		cfg.Class, cfg.OnFailure = "export", leaselimit.FailOpen
		store := newTap()
		lim := newLimiter(t, store, cfg)
		for _, cost := range []int64{1, 1, 1, 1, 3} { // by the store, twice; by its refusal; by what is known of it; above the capacity
			assert.Equal(t, "export", call(t, lim, "acme", cost).Class)
		}
		d, err := lim.Peek(t.Context(), "acme")
		require.NoError(t, err)
		assert.Equal(t, "export", d.Class)
		store.onAcquire(down)
		d = call(t, lim, "other", 1)
		assert.True(t, d.Degraded())
		assert.Equal(t, leaselimit.FailOpen, d.Policy)
		assert.Equal(t, "export", d.Class)
	})
}
