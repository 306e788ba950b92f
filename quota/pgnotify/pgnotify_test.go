package pgnotify_test

import (
	"context"
	"database/sql"
	"log/slog"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/leaselimit/leaselimit/internal/dbtest"
	"github.com/leaselimit/leaselimit/internal/faultproxy"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/quota/pgnotify"
	"github.com/leaselimit/leaselimit/quota/sqlquota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const patience = time.Minute

// rig is a cache over a database, and a listener that reaches it through a proxy.
type rig struct {
	t     *testing.T
	db    *sql.DB
	cache *quota.Cache
	proxy *faultproxy.Proxy
	all   atomic.Int64 // how often everything was invalidated
	stop  func()
}

// Invalidate and InvalidateAll are those of the cache.
func (r *rig) Invalidate(tenant string) { r.cache.Invalidate(tenant) }

func (r *rig) InvalidateAll() {
	r.cache.InvalidateAll()
	r.all.Add(1)
}

func newRig(t *testing.T, opts ...pgnotify.Option) *rig {
	t.Helper()
	at, err := url.Parse(dbtest.Postgres(t))
	require.NoError(t, err)
	r := &rig{t: t, db: dbtest.Open(t, "pgx", at.String()), proxy: faultproxy.New(t, at.Host)}
	require.NoError(t, sqlquota.Migrate(t.Context(), r.db, sqlquota.PostgreSQL))
	r.do(`INSERT INTO leaselimit_tiers VALUES ('free'), ('pro')`)
	r.do(`INSERT INTO leaselimit_tier_limits (tier, capacity, refill, period_ms)
		VALUES ('free', 20, 2, 1000), ('pro', 200, 50, 1000)`)
	r.do(`INSERT INTO leaselimit_tenants (tenant, tier) VALUES ('acme', 'free'), ('other', 'free')`)
	src, err := sqlquota.New(r.db, sqlquota.WithTimeout(patience))
	require.NoError(t, err)
	// Nothing is looked up again but by push.
	r.cache, err = quota.NewCache(src, quota.CacheOptions{TTL: 24 * time.Hour, MaxStale: 24 * time.Hour, Timeout: patience})
	require.NoError(t, err)
	t.Cleanup(r.cache.Close)

	at.Host = r.proxy.Addr()
	connect := func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, at.String()) }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	opts = append([]pgnotify.Option{pgnotify.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	go func() { done <- pgnotify.Run(ctx, connect, r, opts...) }()
	r.stop = func() {
		cancel()
		if err, more := <-done; more {
			assert.NoError(t, err)
			close(done)
		}
	}
	t.Cleanup(r.stop)
	r.listens(1)
	return r
}

func (r *rig) do(statement string) {
	r.t.Helper()
	_, err := r.db.ExecContext(r.t.Context(), statement)
	require.NoError(r.t, err, statement)
}

// listens waits until everything was invalidated n times: n connections, unless it was told to.
func (r *rig) listens(n int64) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.all.Load() >= n }, patience, time.Millisecond)
}

// comes waits until the cache has the limit.
func (r *rig) comes(tenant string, want quota.Limit) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		got, err := r.cache.Limit(r.t.Context(), tenant)
		assert.NoError(c, err)
		assert.Equal(c, want, got)
	}, patience, time.Millisecond)
}

var (
	free = quota.PerSecond(2, 20)
	pro  = quota.PerSecond(50, 200)
)

// Every way to change a limit is pushed, without a TTL that would bring it.
func TestEveryChangeIsPushed(t *testing.T) {
	r := newRig(t)
	r.comes("acme", free)
	r.comes("other", free)
	_, err := r.cache.Limit(t.Context(), "newcomer")
	require.ErrorIs(t, err, quota.ErrUnknownTenant)

	for _, step := range []struct {
		change, tenant string
		want           quota.Limit
	}{
		{`UPDATE leaselimit_tenants SET tier = 'pro' WHERE tenant = 'acme'`, "acme", pro},
		{
			`INSERT INTO leaselimit_overrides (tenant, capacity, refill, period_ms) VALUES ('acme', 1, 1, 1000)`,
			"acme", quota.PerSecond(1, 1),
		},
		{`UPDATE leaselimit_overrides SET capacity = 2`, "acme", quota.PerSecond(1, 2)},
		{`UPDATE leaselimit_overrides SET tenant = 'other'`, "acme", pro},
		{`SELECT 1`, "other", quota.PerSecond(1, 2)},
		{`DELETE FROM leaselimit_overrides`, "other", free},
		{`INSERT INTO leaselimit_tenants (tenant, tier) VALUES ('newcomer', 'free')`, "newcomer", free},
		{`UPDATE leaselimit_tier_limits SET capacity = 21 WHERE tier = 'free'`, "newcomer", quota.PerSecond(2, 21)},
		{`SELECT 1`, "other", quota.PerSecond(2, 21)},
		{`INSERT INTO leaselimit_overrides (tenant, unlimited) VALUES ('acme', true)`, "acme", quota.Unlimited},
		{`TRUNCATE leaselimit_overrides`, "acme", pro},
	} {
		r.do(step.change)
		r.comes(step.tenant, step.want)
	}
	r.do(`DELETE FROM leaselimit_tenants WHERE tenant = 'newcomer'`)
	require.Eventually(t, func() bool {
		_, err := r.cache.Limit(t.Context(), "newcomer")
		return err != nil
	}, patience, time.Millisecond)
	assert.EqualValues(t, 1, r.proxy.Accepted(), "all of it over one connection")
}

// A change of one tenant is looked up without its next call, and nobody else is.
func TestOneTenantIsLookedUpAtOnce(t *testing.T) {
	r := newRig(t)
	r.comes("acme", free)
	r.comes("other", free)
	before := r.cache.Stats().Lookups
	r.do(`UPDATE leaselimit_tenants SET tier = 'pro' WHERE tenant = 'acme'`)
	require.Eventually(t, func() bool {
		s := r.cache.Stats()
		return s.Lookups > before && s.InFlight == 0
	}, patience, time.Millisecond)
	got, err := r.cache.Limit(t.Context(), "acme")
	require.NoError(t, err)
	assert.Equal(t, pro, got, "the first call after the change")
	assert.Equal(t, before+1, r.cache.Stats().Lookups)
}

// What was changed while nobody listened is seen once somebody does.
func TestGap(t *testing.T) {
	for name, lose := range map[string]func(*rig){
		"the connection is cut": func(r *rig) {
			r.proxy.Refuse(true)
			r.proxy.CloseAll()
		},
		"the network swallows everything": func(r *rig) { r.proxy.DropReplies(true) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgnotify.WithCheck(time.Second/4))
			r.comes("acme", free)
			lose(r)
			r.do(`UPDATE leaselimit_tenants SET tier = 'pro' WHERE tenant = 'acme'`)
			require.Eventually(t, func() bool { return r.proxy.Conns() == 0 }, patience, time.Millisecond)
			r.proxy.Refuse(false)
			r.proxy.DropReplies(false)
			r.listens(2)
			r.comes("acme", pro)
		})
	}
}

func TestServerEndsTheConnection(t *testing.T) {
	r := newRig(t)
	r.comes("acme", free)
	r.do(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()`)
	r.listens(2)
	r.do(`UPDATE leaselimit_tenants SET tier = 'pro' WHERE tenant = 'acme'`)
	r.comes("acme", pro)
}

// A quiet connection is checked, and kept.
func TestQuietConnectionIsKept(t *testing.T) {
	r := newRig(t, pgnotify.WithCheck(5*time.Millisecond))
	r.comes("acme", free)
	requests := r.proxy.Requests()
	require.Eventually(t, func() bool { return r.proxy.Requests() > requests+5 }, patience, time.Millisecond)
	r.do(`UPDATE leaselimit_tenants SET tier = 'pro' WHERE tenant = 'acme'`)
	r.comes("acme", pro)
}

func TestStopsWithItsContext(t *testing.T) {
	r := newRig(t)
	r.stop()
	require.Eventually(t, func() bool { return r.proxy.Conns() == 0 }, patience, time.Millisecond)

	r = newRig(t)
	r.proxy.Refuse(true)
	r.proxy.CloseAll()
	r.stop() // between two connections
}

func TestArguments(t *testing.T) {
	connect := func(context.Context) (*pgx.Conn, error) { return nil, context.Canceled }
	cache, err := quota.NewCache(quota.Fixed(free), quota.CacheOptions{})
	require.NoError(t, err)
	for wrong, run := range map[string]func() error{
		"connect is nil":       func() error { return pgnotify.Run(t.Context(), nil, cache) },
		"cache is nil":         func() error { return pgnotify.Run(t.Context(), connect, nil) },
		"WithChannel is empty": func() error { return pgnotify.Run(t.Context(), connect, cache, pgnotify.WithChannel("")) },
		"WithCheck is 0s":      func() error { return pgnotify.Run(t.Context(), connect, cache, pgnotify.WithCheck(0)) },
		"WithLogger is nil":    func() error { return pgnotify.Run(t.Context(), connect, cache, pgnotify.WithLogger(nil)) },
	} {
		require.ErrorContains(t, run(), wrong)
	}
}
