package quota_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	slow    = quota.PerSecond(2, 20)
	quick   = quota.PerSecond(50, 200)
	errGone = errors.New("gone")
)

// table is a source whose answers a test sets. Lookups are counted, and take as long as took.
type table struct {
	mu      sync.Mutex
	limits  map[string]quota.Limit
	err     error         // of every lookup, if set
	took    time.Duration // of every lookup, or until its context is done
	deaf    bool          // to contexts
	lookups int
	flying  int
	most    int // that were under way at a time
}

func (s *table) Limit(ctx context.Context, tenant string) (quota.Limit, error) {
	s.mu.Lock()
	s.lookups++
	s.flying++
	s.most = max(s.most, s.flying)
	took, deaf := s.took, s.deaf
	limit, ok := s.limits[tenant] // read at the start: a change while it takes its time is not seen
	err := s.err
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.flying--
		s.mu.Unlock()
	}()
	if deaf {
		ctx = context.Background()
	}
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return quota.Unlimited, ctx.Err() // what comes with an error must not be used
		}
	}
	switch {
	case err != nil:
		return quota.Unlimited, err
	case !ok:
		return quota.Unlimited, fmt.Errorf("no row for %q: %w", tenant, quota.ErrUnknownTenant)
	}
	return limit, nil
}

func (s *table) set(change func(s *table)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *table) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookups
}

func newTable(limit quota.Limit, tenants ...string) *table {
	s := &table{limits: make(map[string]quota.Limit)}
	for _, tenant := range tenants {
		s.limits[tenant] = limit
	}
	return s
}

func newCache(t *testing.T, src quota.Source, opts quota.CacheOptions) *quota.Cache {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := quota.NewCache(src, opts)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func want(t *testing.T, c *quota.Cache, tenant string, limit quota.Limit) {
	t.Helper()
	got, err := c.Limit(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, limit, got)
}

func wantError(t *testing.T, c *quota.Cache, tenant string, target error) {
	t.Helper()
	got, err := c.Limit(t.Context(), tenant)
	require.ErrorIs(t, err, target)
	require.Equal(t, quota.Limit{}, got, "with an error nothing passes")
}

// after lets d pass, and everything that it sets off come to rest.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestCacheRemembersAndRefreshesInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme")
		c := newCache(t, src, quota.CacheOptions{})
		for range 5 {
			want(t, c, "acme", slow)
		}
		assert.Equal(t, 1, src.asked())

		src.set(func(s *table) { s.limits["acme"] = quick; s.took = time.Second / 2 })
		after(35 * time.Second) // 0.8 TTL is 36s
		want(t, c, "acme", slow)
		assert.Equal(t, 1, src.asked(), "not due yet")
		after(11 * time.Second)
		start := time.Now()
		for range 5 {
			want(t, c, "acme", slow)
		}
		assert.Zero(t, time.Since(start), "nobody waits for a refresh")
		after(time.Second)
		want(t, c, "acme", quick)
		assert.Equal(t, 2, src.asked(), "one refresh for five calls")

		st := c.Stats()
		assert.EqualValues(t, 1, st.Misses)
		assert.EqualValues(t, 5, st.StaleServes)
		assert.EqualValues(t, 1, st.Refreshes)
		assert.EqualValues(t, 2, st.Lookups)
		assert.Equal(t, 1, st.Entries)
		assert.Zero(t, st.InFlight+st.Queued)
	})
}

// A change in the source is seen within the TTL by a tenant that calls.
func TestQC9_CachedLimitsRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme")
		c := newCache(t, src, quota.CacheOptions{TTL: 30 * time.Second})
		want(t, c, "acme", slow)
		src.set(func(s *table) { s.limits["acme"] = quick })
		for range 32 { // TTL, one tick of the clock and one call
			after(time.Second)
			_, err := c.Limit(t.Context(), "acme")
			require.NoError(t, err)
		}
		want(t, c, "acme", quick)
	})
}

// A slow source: the old value is served while it is asked, and no expiry lets anybody pass.
func TestQC10_NoFreePassWhenAnEntryExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(quota.Limit{}, "blocked")
		src.took = 2 * time.Second
		c := newCache(t, src, quota.CacheOptions{TTL: time.Second, Timeout: 3 * time.Second})
		want(t, c, "blocked", quota.Limit{})
		start := time.Now()
		for range 1000 {
			want(t, c, "blocked", quota.Limit{})
			after(10 * time.Millisecond)
		}
		assert.LessOrEqual(t, time.Since(start), 10*time.Second, "and nobody waits")
		assert.LessOrEqual(t, src.asked(), 6)
	})
}

// A capacity of 0 is cached as what it is.
func TestQC16_ZeroIsNotUnset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(quota.Limit{}, "blocked")
		src.limits["free"] = quota.Unlimited
		c := newCache(t, src, quota.CacheOptions{Default: &quick})
		for range 3 {
			want(t, c, "blocked", quota.Limit{})
			want(t, c, "free", quota.Unlimited)
			after(time.Minute)
		}
	})
}

func TestCacheMergesMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme")
		src.took = time.Second / 2
		c := newCache(t, src, quota.CacheOptions{})
		var ok, cancelled atomic.Int64
		var all sync.WaitGroup
		leader, leave := context.WithCancel(t.Context())
		call := func(ctx context.Context) {
			all.Go(func() {
				switch limit, err := c.Limit(ctx, "acme"); {
				case err == nil && limit == slow:
					ok.Add(1)
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				}
			})
			synctest.Wait()
		}
		call(leader) // whoever starts the lookup
		for range 50 {
			call(t.Context())
		}
		leave()
		synctest.Wait()
		assert.EqualValues(t, 1, cancelled.Load(), "at once, and alone")
		assert.Zero(t, ok.Load())
		all.Wait()
		assert.EqualValues(t, 50, ok.Load())
		assert.Equal(t, 1, src.asked())
	})
}

// A caller that is gone when the answer comes has not asked in vain.
func TestCacheKeepsWhatNobodyWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme")
		src.took = time.Second / 2
		c := newCache(t, src, quota.CacheOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.Limit(ctx, "acme")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		after(time.Second)
		want(t, c, "acme", slow)
		assert.Equal(t, 1, src.asked())
		_, err = c.Limit(ctx, "never seen")
		require.ErrorIs(t, err, context.DeadlineExceeded, "a caller that is gone already asks nothing")
		synctest.Wait()
		assert.Equal(t, 1, src.asked())
	})
}

// A lookup that has not begun when the last of its callers leaves is not made.
func TestCacheDropsWhatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme")
		src.took = 10 * time.Second
		c := newCache(t, src, quota.CacheOptions{MaxLookups: 1, Timeout: time.Minute})
		var all sync.WaitGroup
		all.Go(func() { want(t, c, "acme", slow) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			for i := range 20 {
				all.Go(func() {
					_, err := c.Limit(ctx, fmt.Sprint("tenant-", i))
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				})
			}
		}
		all.Wait()
		after(time.Minute)
		assert.Equal(t, 1, src.asked())
		assert.Zero(t, c.Stats().Queued)
	})
}

func TestCacheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme")
		c := newCache(t, src, quota.CacheOptions{Timeout: time.Hour, MaxLookups: 2})
		want(t, c, "acme", slow)
		src.set(func(s *table) { s.took = time.Hour })
		c.Invalidate("acme")
		var all sync.WaitGroup
		for _, tenant := range []string{"never seen", "never seen", "in the queue"} {
			all.Go(func() { wantError(t, c, tenant, quota.ErrClosed) })
			synctest.Wait()
		}
		synctest.Wait()
		start := time.Now()
		c.Close()
		c.Close()
		all.Wait()
		assert.Zero(t, time.Since(start))
		wantError(t, c, "acme", quota.ErrClosed)
		wantError(t, c, "never seen", quota.ErrClosed)
		c.Invalidate("acme")
		c.InvalidateAll()
		assert.Equal(t, 3, src.asked())
	})
}

// An answer that came before a long rest is not taken for a fresh one.
func TestCacheWakesAfterARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme")
		c := newCache(t, src, quota.CacheOptions{})
		for range 3 {
			want(t, c, "acme", slow)
			before := src.asked()
			after(20 * time.Minute)
			want(t, c, "acme", slow) // stale, after a rest that stopped the clock
			synctest.Wait()
			assert.Equal(t, before+1, src.asked())
		}
	})
}

func TestCacheLogsChangesOfState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines lineCounter
		src := newTable(slow, "acme")
		c := newCache(t, src, quota.CacheOptions{Logger: slog.New(&lines), Backoff: time.Second})
		want(t, c, "acme", slow)
		src.set(func(s *table) { s.err = errGone })
		for range 600 {
			want(t, c, "acme", slow)
			after(time.Second)
		}
		assert.Equal(t, []string{"quota: lookups fail"}, lines.all)
		src.set(func(s *table) { s.err = nil })
		for range 100 {
			want(t, c, "acme", slow)
			after(time.Second)
		}
		assert.Equal(t, []string{"quota: lookups fail", "quota: lookups succeed again"}, lines.all)
	})
}

// Bad rows, however many, are a line a minute.
func TestCacheLogsInvalidLimitsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines lineCounter
		src := newTable(quota.Limit{Capacity: -1}, "a", "b", "c")
		c := newCache(t, src, quota.CacheOptions{Logger: slog.New(&lines)})
		for range 2 {
			for tenant := range src.limits {
				wantError(t, c, tenant, quota.ErrInvalid)
			}
			after(61 * time.Second)
		}
		assert.Equal(t, []string{"quota: the source answers with an invalid limit", "quota: the source answers with an invalid limit"},
			lines.all)
	})
}

type lineCounter struct {
	slog.Handler

	all []string
}

func (*lineCounter) Enabled(context.Context, slog.Level) bool { return true }
func (l *lineCounter) Handle(_ context.Context, r slog.Record) error {
	l.all = append(l.all, r.Message)
	return nil
}

func TestCacheOptions(t *testing.T) {
	src := newTable(slow)
	for wrong, opts := range map[string]quota.CacheOptions{
		"TTL is 1ns":         {TTL: 1},
		"TTL is -1s":         {TTL: -time.Second},
		"MaxStale is 1m0s":   {TTL: 2 * time.Minute, MaxStale: time.Minute},
		"Timeout is -1s":     {Timeout: -time.Second},
		"MaxTenants is -1":   {MaxTenants: -1},
		"MaxLookups is -1":   {MaxLookups: -1},
		"Backoff is 1m0s":    {Backoff: time.Minute},
		"Default: quota: in": {Default: &quota.Limit{Capacity: -1}},
	} {
		_, err := quota.NewCache(src, opts)
		require.ErrorContains(t, err, wrong)
		require.ErrorContains(t, err, "must be")
	}
	_, err := quota.NewCache(nil, quota.CacheOptions{})
	require.ErrorContains(t, err, "source is nil")
	for _, ttl := range []time.Duration{10 * time.Millisecond, time.Millisecond * 999, 24 * time.Hour} {
		_, err = quota.NewCache(src, quota.CacheOptions{TTL: ttl})
		require.NoError(t, err, "the other defaults follow")
	}
}

func TestCacheAllocatesNothing(t *testing.T) {
	c := newCache(t, newTable(slow, "acme"), quota.CacheOptions{})
	ctx := t.Context()
	want(t, c, "acme", slow)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = c.Limit(ctx, "acme") }))
	_, err := c.Limit(ctx, "nobody")
	require.ErrorIs(t, err, quota.ErrUnknownTenant)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = c.Limit(ctx, "nobody") }), "the error of an unknown tenant")
}

func ExampleNewCache() {
	rows := map[string]quota.Limit{"acme": quota.PerSecond(50, 200)}
	source := quota.SourceFunc(func(_ context.Context, tenant string) (quota.Limit, error) { // a database
		limit, ok := rows[tenant]
		if !ok {
			return quota.Limit{}, quota.ErrUnknownTenant
		}
		return limit, nil
	})
	free := quota.PerSecond(2, 20)
	limits, err := quota.NewCache(source, quota.CacheOptions{Default: &free})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()
	for _, tenant := range []string{"acme", "acme", "newcomer"} {
		limit, err := limits.Limit(context.Background(), tenant)
		fmt.Println(tenant, limit, err)
	}
	fmt.Println(limits.Stats().Lookups, "lookups")
	// Output:
	// acme 200 at 50/1s <nil>
	// acme 200 at 50/1s <nil>
	// newcomer 20 at 2/1s <nil>
	// 2 lookups
}
