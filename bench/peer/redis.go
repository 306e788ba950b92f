package peer

import (
	_ "embed"
	"errors"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// Limiters that ask Redis for every call.
var (
	RedisRate = Peer{Name: "redis_rate", New: redisRate}
	Throttled = Peer{Name: "throttled", New: newThrottled, Contends: true}
	Ulule     = Peer{Name: "ulule", New: ulule}
	// ScriptGoRedis and ScriptRueidis are what is written by hand: a token bucket as one script, one trip for each call. The
	// second client sends the calls of all callers through a few connections, pipelined.
	ScriptGoRedis = Peer{Name: "script-go-redis", New: scriptGoRedis}
	ScriptRueidis = Peer{Name: "script-rueidis", New: scriptRueidis}
)

func redisRate(w Work) (*Limiter, error) {
	rdb := goRedis(w)
	lim := redis_rate.NewLimiter(rdb)
	limit := redis_rate.Limit{Rate: 1, Burst: 1, Period: Long}
	if w.Allow {
		limit = redis_rate.PerSecond(int(Plenty))
	}
	names := w.Names()
	return &Limiter{
		Decide: func(i int) (bool, error) {
			r, err := lim.Allow(Ctx, names[i], limit)
			if err != nil {
				return false, err
			}
			return r.Allowed == 1, nil
		},
		Close: func() error { return drop(rdb, "rate:", names) },
	}, nil
}

func newThrottled(w Work) (*Limiter, error) {
	rdb := goRedis(w)
	store, err := goredisstore.NewCtx(rdb, "")
	if err != nil {
		return nil, err
	}
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1, Long)}
	if w.Allow {
		// Its times are whole nanoseconds: a token a microsecond, and enough of them to begin with.
		quota = throttled.RateQuota{MaxRate: throttled.PerDuration(int(1e6), time.Second), MaxBurst: 1e9}
	}
	lim, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return nil, err
	}
	names := w.Names()
	return &Limiter{
		Decide: func(i int) (bool, error) {
			limited, _, err := lim.RateLimitCtx(Ctx, names[i], 1)
			return !limited && err == nil, err
		},
		Close: func() error { return drop(rdb, "", names) },
	}, nil
}

func ulule(w Work) (*Limiter, error) {
	const prefix = "ulule"
	rdb := goRedis(w)
	store, err := ululeredis.NewStoreWithOptions(rdb, limiter.StoreOptions{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	lim := limiter.New(store, limiter.Rate{Period: Long, Limit: w.limit().Capacity})
	names := w.Names()
	return &Limiter{
		Decide: func(i int) (bool, error) {
			c, err := lim.Get(Ctx, names[i])
			return !c.Reached && err == nil, err
		},
		Close: func() error { return drop(rdb, prefix+":", names) },
	}, nil
}

//go:embed script.lua
var source string

// terms are the script's arguments but the cost: capacity and tokens per ms.
func (w Work) terms() (capacity, perMillisecond string) {
	l := w.limit()
	return strconv.FormatInt(l.Capacity, 10), strconv.FormatFloat(l.PerMillisecond(), 'g', -1, 64)
}

func scriptGoRedis(w Work) (*Limiter, error) {
	rdb := goRedis(w)
	script := redis.NewScript(source)
	capacity, rate := w.terms()
	names := w.Names()
	return &Limiter{
		Decide: func(i int) (bool, error) {
			reply, err := script.Run(Ctx, rdb, []string{names[i]}, capacity, rate, 1).Int64Slice()
			if err != nil {
				return false, err
			}
			return reply[0] == 1, nil
		},
		Close: func() error { return drop(rdb, "", names) },
	}, nil
}

func scriptRueidis(w Work) (*Limiter, error) {
	rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{w.Addr}, DisableCache: true})
	if err != nil {
		return nil, err
	}
	script := rueidis.NewLuaScript(source)
	capacity, rate := w.terms()
	names := w.Names()
	return &Limiter{
		Decide: func(i int) (bool, error) {
			reply, err := script.Exec(Ctx, rdb, []string{names[i]}, []string{capacity, rate, "1"}).AsIntSlice()
			if err != nil {
				return false, err
			}
			return reply[0] == 1, nil
		},
		Close: func() error {
			rdb.Close()
			return drop(goRedis(w), "", names)
		},
	}, nil
}

// drop deletes the keys of all tenants and closes rdb.
func drop(rdb *redis.Client, prefix string, names []string) error {
	const batch = 1000
	var errs []error
	for len(names) > 0 {
		n := min(batch, len(names))
		keys := make([]string, n)
		for i, name := range names[:n] {
			keys[i] = prefix + name
		}
		errs = append(errs, rdb.Unlink(Ctx, keys...).Err())
		names = names[n:]
	}
	return errors.Join(append(errs, rdb.Close())...)
}
