package tune

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/dial"
	"github.com/leaselimit/leaselimit/internal/chart"
	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
)

// A choice is what is the limiter's to choose.
type choice struct {
	Budget float64 `json:"max_overshoot"`
	Share  float64 `json:"lease_share"`
	Size   int64   `json:"lease_size"` // 0: adaptive
}

// A row is a run, and what came of it.
type row struct {
	choice
	place

	StoreCalls float64       `json:"store_calls_per_call"`
	Waiting    float64       `json:"waiting"` // share of the admitted calls that waited for the store
	P99        time.Duration `json:"p99_ns"`  // of all calls
	Admitted   float64       `json:"admitted_per_ideal"`
	Bound      int64         `json:"bound_tokens"`
	BurstLoss  float64       `json:"burst_loss"` // of the capacity, at most

	// Attack is the overshoot, in tokens, that a load reached that was after it. It is simulated.
	Attack *float64 `json:"attack_tokens,omitempty"`
}

// storeTimeout: a run is to tell how long calls wait, and not to cut it off.
const storeTimeout = 10 * time.Second

func (c choice) config() leaselimit.Config {
	return leaselimit.Config{
		MaxOvershoot: c.Budget, Exact: c.Budget == 0, LeaseShare: c.Share, LeaseSize: c.Size,
		StoreTimeout: storeTimeout, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// A lab makes runs.
type lab struct {
	*settings

	rdb redis.UniversalClient // nil: simulated
}

func newLab(ctx context.Context, s *settings) (*lab, error) {
	if s.redis == "" {
		return &lab{settings: s}, nil
	}
	server, err := dial.Parse(s.redis)
	if err != nil {
		return nil, cli.Usagef("-redis: %v", err)
	}
	l := &lab{s, server()}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := l.rdb.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("redis does not answer: %w", errors.Join(err, l.rdb.Close()))
	}
	return l, nil
}

func (l *lab) close() error {
	if l.rdb == nil {
		return nil
	}
	return l.rdb.Close()
}

// run makes the run of a choice at a place.
func (l *lab) run(ctx context.Context, c choice, p place) (r row, err error) {
	f := fleet.Config{
		Limit: l.limit, Replicas: p.Replicas, Load: p.Load, Duration: l.length(p), RTT: p.RTT,
		Limiter: c.config(), Refusals: true, Seed: l.seed,
	}
	f.Limiter.Replicas = p.Replicas
	var result fleet.Result
	if l.rdb == nil {
		l.bubble(func() {
			f.Store = membucket.New()
			result, err = fleet.Run(f)
		})
	} else {
		store := redisbucket.New(l.rdb, redisbucket.WithPrefix(l.prefix+"-"+rand.Text()))
		f.Store = store
		result, err = fleet.Run(f)
		// Nobody else knows the key. An interrupt ended ctx.
		key := store.RedisKey(lease.Key{Tenant: fleet.Tenant, Class: "default"})
		err = errors.Join(err, l.rdb.Del(context.WithoutCancel(ctx), key).Err())
	}
	if err != nil {
		return row{}, fmt.Errorf("a run with %+v at %+v: %w", c, p, err)
	}
	return row{
		choice: c, place: p, StoreCalls: result.StoreCalls(), Waiting: result.Waiting(), P99: p99(result.Log), Admitted: result.Share(),
		Bound: c.bound(l.limit), BurstLoss: c.burstLoss(),
	}, nil
}

// bound is the budget in tokens, as limiters count them.
func (c choice) bound(limit quota.Limit) int64 {
	o := lease.Options{MaxOvershoot: c.Budget}
	return o.Terms(limit).Budget
}

// burstLoss is what of a burst on one replica may be refused while others hold leases, as a fraction of the capacity.
func (c choice) burstLoss() float64 { return max(0, c.Share-c.Budget) }

// attack is the overshoot of a load that is after it, in tokens.
func (l *lab) attack(c choice, replicas int) (over float64, err error) {
	l.bubble(func() { over, _, err = chart.Attack(membucket.New(), l.limit, c.config(), replicas) })
	return max(0, over), err
}

func p99(calls []fleet.Call) time.Duration {
	if len(calls) == 0 {
		return 0
	}
	took := make([]time.Duration, len(calls))
	for i, c := range calls {
		took[i] = c.End - c.Start
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}
