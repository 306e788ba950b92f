package main

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/quota/pgnotify"
	"github.com/leaselimit/leaselimit/quota/sqlquota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
)

// closers are what is to be closed at the end, the last first.
type closers []func()

func (c *closers) add(f func()) { *c = append(*c, f) }

func (c *closers) close() {
	for _, end := range slices.Backward(*c) {
		end()
	}
}

// buckets is where the tokens are.
func buckets(redisURL string, ends *closers) (lease.Store, error) {
	if redisURL == "" {
		return membucket.New(), nil
	}
	opts, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, err
	}
	opts.ContextTimeoutEnabled = true
	rdb := redis.NewClient(opts)
	ends.add(func() { _ = rdb.Close() })
	return redisbucket.New(rdb), nil
}

// tiers says whose limit is which.
func tiers(ctx context.Context, postgresURL string, ends *closers) (quota.Source, error) {
	if postgresURL == "" {
		return quota.SourceFunc(inMemory), nil // it answers from memory, so it needs no cache
	}
	db, err := sql.Open("pgx", postgresURL)
	if err != nil {
		return nil, err
	}
	ends.add(func() { _ = db.Close() })
	if err := sqlquota.Migrate(ctx, db, sqlquota.PostgreSQL); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, sample); err != nil {
		return nil, err
	}
	src, err := sqlquota.New(db, sqlquota.WithTimeout(patience))
	if err != nil {
		return nil, err
	}
	cache, err := quota.NewCache(src, quota.CacheOptions{TTL: 30 * time.Second, Timeout: patience})
	if err != nil {
		return nil, err
	}
	ends.add(cache.Close)

	// Push. Without it a change is in force within the TTL.
	ctx, cancel := context.WithCancel(ctx)
	var listener sync.WaitGroup
	listener.Go(func() {
		connect := func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, postgresURL) }
		_ = pgnotify.Run(ctx, connect, cache)
	})
	ends.add(func() {
		cancel()
		listener.Wait()
	})
	return cache, nil
}

func inMemory(_ context.Context, tenant string) (quota.Limit, error) {
	free, pro, burst := quota.PerSecond(2, 20), quota.PerSecond(50, 200), quota.PerSecond(10, 100)
	limit, ok := map[string]quota.Limit{"small-co": free, "large-co": pro, "bursty-co": burst}[tenant]
	if !ok {
		return quota.Limit{}, quota.ErrUnknownTenant
	}
	return limit, nil
}

// sample is the same in a database, where there is nothing yet.
const sample = `
INSERT INTO leaselimit_tiers (tier) VALUES ('free'), ('pro'), ('burst') ON CONFLICT DO NOTHING;
INSERT INTO leaselimit_tier_limits (tier, capacity, refill, period_ms) VALUES
	('free', 20, 2, 1000), ('pro', 200, 50, 1000), ('burst', 100, 10, 1000) ON CONFLICT DO NOTHING;
INSERT INTO leaselimit_tenants (tenant, tier) VALUES
	('small-co', 'free'), ('large-co', 'pro'), ('bursty-co', 'burst') ON CONFLICT DO NOTHING;`
