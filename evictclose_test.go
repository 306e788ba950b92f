package leaselimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ending is a limiter that is called by many goroutines until it is closed.
type ending struct {
	t        *testing.T
	store    *tap
	lim      *leaselimit.Limiter
	callers  sync.WaitGroup
	calls    atomic.Int64
	admitted atomic.Int64 // tokens
	stats    leaselimit.Stats
}

func newEnding(t *testing.T, store *tap, cfg leaselimit.Config) *ending {
	t.Helper()
	cfg.OnFailure, cfg.Logger = leaselimit.FailClosed, slog.New(slog.DiscardHandler)
	lim, err := leaselimit.New(store, cfg)
	require.NoError(t, err)
	return &ending{t: t, store: store, lim: lim}
}

// allow makes a call, by the tenant's name or by a handle that outlives its evictions. It reports false once the limiter is closed.
func (e *ending) allow(tenant string, handle *leaselimit.Tenant, cost int64) bool {
	var d leaselimit.Decision
	var err error
	if handle != nil {
		d, err = handle.AllowN(context.Background(), cost)
	} else {
		d, err = e.lim.AllowN(context.Background(), tenant, cost)
	}
	e.calls.Add(1)
	if err != nil {
		assert.ErrorIs(e.t, err, leaselimit.ErrClosed)
		return false
	}
	assert.False(e.t, d.Degraded())
	if d.Allowed {
		e.admitted.Add(cost)
	}
	return true
}

// open reports whether the limiter is not closed.
func (e *ending) open() bool {
	e.calls.Add(1)
	_, err := e.lim.Allow(context.Background(), "")
	return !errors.Is(err, leaselimit.ErrClosed)
}

// call has n goroutines call random tenants until the limiter is closed.
func (e *ending) call(n, tenants int, rnd *rand.Rand) {
	for range n {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		e.callers.Go(func() {
			handles := make([]*leaselimit.Tenant, tenants)
			for i := range tenants {
				if i%2 == 0 {
					handles[i] = e.lim.Tenant(fmt.Sprint(i))
				}
			}
			for {
				i := rnd.IntN(tenants)
				if !e.allow(fmt.Sprint(i), handles[i], 1+rnd.Int64N(3)) {
					return
				}
			}
		})
	}
}

// end closes the limiter, and checks that every token went one way and that nothing is left.
func (e *ending) end() {
	t := e.t
	require.NoError(t, e.lim.Close(context.Background()))
	draws, returns := len(e.store.draws()), len(e.store.returns())
	e.callers.Wait()
	require.False(t, e.lim.StopSweep(), "a timer is left")
	time.Sleep(24 * time.Hour)
	require.Len(t, e.store.draws(), draws, "nothing comes after Close")
	require.Len(t, e.store.returns(), returns)

	e.stats = e.lim.Stats()
	st, k := e.stats, e.store.tokens()
	require.Equal(t, e.admitted.Load(), k.waiters+k.surplus-k.unspent-k.waitersUnused, "granted, and not given back")
	require.Equal(t, k.surplus, st.TokensSpent+st.TokensReturned, "no lease is lost: %+v", st)
	require.Zero(t, st.TokensHeld)
	adds(t, st, e.calls.Load())

	type lot struct {
		tenant string
		epoch  int64
	}
	leased, back := map[lot]int64{}, map[lot]int64{}
	for _, d := range e.store.draws() {
		leased[lot{d.req.Key.Tenant, d.grant.Epoch}] += d.grant.Surplus
	}
	for _, r := range e.store.returns() {
		back[lot{r.Key.Tenant, r.Epoch}] += r.Unspent + r.Spent
	}
	for l, n := range back {
		require.LessOrEqual(t, n, leased[l], "given back twice: %+v", l)
	}

	lim := weak.Make(e.lim)
	e.lim = nil
	runtime.GC()
	require.Nil(t, lim.Value(), "a timer that is set again and again, or a goroutine, has the limiter")
}

// A new tenant makes another one go at the very moment of Close: the other's lease goes back once, by one of the two.
func TestEvictionsWhileCloseRuns(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const tenants, kept, held = 30, 10, 20
	rounds := 150
	if testing.Short() {
		rounds = 50
	}
	evicted := int64(0) // from when Close began, or just before
	for round := range rounds {
		bubble(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, uint64(round)))
			s := newTap()
			if round%3 == 0 { // Close finds draws and returns under way
				s.onAcquire(late(ms))
				s.onReturn(func(_ context.Context, next func() error) error {
					time.Sleep(ms)
					return next()
				})
			}
			// Calls of these tenants are past the question whether the limiter is closed when it is closed.
			limit, closing := still(1_000_000), make(chan struct{})
			var e *ending
			var asked atomic.Int64
			cfg := leaselimit.Config{Limits: quota.SourceFunc(func(_ context.Context, tenant string) (quota.Limit, error) {
				if strings.HasPrefix(tenant, "held-") {
					n := asked.Add(1)
					<-closing
					for n%2 == 0 && e.open() {
						runtime.Gosched()
					}
				}
				return limit, nil
			})}
			cfg.MaxTenants, cfg.LeaseSize, cfg.Replicas = kept, 8, 1
			e = newEnding(t, s, cfg)
			for i := range held {
				e.callers.Go(func() { e.allow(fmt.Sprint("held-", i), nil, 1) })
			}
			if round%4 != 0 { // otherwise there is no tenant before
				e.call(6, tenants, rnd)
				for until := 20 + rnd.Int64N(200); e.calls.Load() < until; {
					if round%3 == 0 {
						time.Sleep(ms / 2)
					} else {
						runtime.Gosched()
					}
				}
			}
			for asked.Load() < held {
				runtime.Gosched()
			}
			before := e.lim.Stats().Evicted
			go close(closing)
			e.end()
			evicted += e.stats.Evicted - before
			left := 0.0
			for i := range tenants {
				tokens, _ := level(t, s, fmt.Sprint(i), limit)
				left += tokens
			}
			for i := range held {
				tokens, _ := level(t, s, fmt.Sprint("held-", i), limit)
				left += tokens
			}
			require.InDelta(t, float64((tenants+held)*limit.Capacity-e.admitted.Load()), left, 1e-3, "what was not spent is back")
		})
	}
	assert.Positive(t, evicted)
	t.Logf("%d evicted", evicted)
}

// The sweep of idle tenants and Close at the same moment, while calls bring some of those tenants back.
func TestTheSweepWhileCloseRuns(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	idle := int64(0)
	for round := range rounds {
		bubble(t, func(t *testing.T) {
			const tenants, ttl = 300, time.Second
			rnd := rand.New(rand.NewPCG(seed, uint64(round)))
			s := newTap()
			s.onReturn(func(_ context.Context, next func() error) error {
				time.Sleep(100 * ms)
				return next()
			})
			cfg := limited(quota.PerSecond(1000, 1000))
			cfg.LeaseTTL, cfg.StoreTimeout, cfg.LeaseSize, cfg.Replicas = ttl, ttl/2, 8, 1
			e := newEnding(t, s, cfg)
			for i := range tenants {
				require.True(t, e.allow(fmt.Sprint(i), nil, 1))
			}
			// Three steps make a round. In the third round nothing is known of most tenants any more that is worth keeping; the
			// others have a lease.
			at := ttl + ttl/3*time.Duration(5+rnd.IntN(4))
			time.Sleep(at - 200*ms)
			for i := range tenants / 4 {
				require.True(t, e.allow(fmt.Sprint(4*i), nil, 1))
			}
			time.Sleep(200 * ms)
			before := e.calls.Load()
			e.call(4, tenants, rnd)
			for until := before + rnd.Int64N(50); e.calls.Load() < until; {
				runtime.Gosched()
			}
			e.end()
			idle += e.stats.Idle
		})
	}
	assert.Positive(t, idle, "the sweep took some along")
	t.Logf("%d idle", idle)
}
