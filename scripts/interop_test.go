package scripts_test

import (
	_ "embed"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/fakeclock"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/plain.lua
var plain string

var key = lease.Key{Tenant: "acme", Class: "default"}

// A service in another language and this library share a bucket, call by call in turn: the first by the plain script through
// redis-cli, the other with leases. Together they stay within capacity + rate*elapsed + what may be leased.
func TestInteropWithThePlainScript(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	s := redisbucket.New(rdb)
	lim := lease.Terms{Limit: quota.PerSecond(20, 60), Budget: 6, Share: 15, TTL: 2 * time.Second}
	rate := strconv.FormatFloat(lim.Limit.PerMillisecond(), 'g', 17, 64)

	begun := rdb.Time(t.Context()).Val()
	var ours, theirs int64
	for range 100 {
		g, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 2, Want: 5})
		require.NoError(t, err)
		ours += g.Waiters + g.Surplus
		reply := srv.CLI(t, "EVAL", plain, "1", s.RedisKey(key), "60", rate, "2")
		if strings.HasPrefix(reply, "1") {
			theirs += 2
		}
	}
	elapsed := rdb.Time(t.Context()).Val().Sub(begun)

	refilled := float64(elapsed.Milliseconds()+1) / 1000 * 20
	assert.LessOrEqual(t, float64(ours+theirs), 60+refilled+15)
	assert.GreaterOrEqual(t, float64(ours+theirs), min(60+refilled, 400)*0.7, "and neither locks the other out")
	assert.Positive(t, ours)
	assert.Positive(t, theirs)
	assert.Positive(t, rdb.PTTL(t.Context(), s.RedisKey(key)).Val())
}

// turns lets both draw ten tokens in turn, every 50 µs for 200 ms, of a bucket of 1000 with 100 a ms; and gives what they got.
func turns(t *testing.T, mutate func(string) string) (admitted int64) {
	t.Helper()
	rdb, clock := redistest.Client(t), fakeclock.Mutant(1_757_000_000_000_000, mutate)
	rdb.AddHook(clock)
	s := redisbucket.New(rdb, redisbucket.WithPrefix(redistest.Prefix(t)))
	lim := lease.Terms{Limit: quota.PerSecond(100_000, 1000), TTL: time.Second}
	script := redis.NewScript(plain)
	for i := range 4000 {
		clock.Advance(50 * time.Microsecond)
		if i%2 == 0 {
			g, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 10, Need: 10})
			require.NoError(t, err)
			admitted += g.Waiters
			continue
		}
		reply, err := script.Eval(t.Context(), rdb, []string{s.RedisKey(key)}, 1000, "100", 10).Int64Slice()
		require.NoError(t, err)
		admitted += 10 * reply[0]
	}
	return admitted
}

// The plain script knows whole ms only. It must not find a time of the bucket that it would set back within the ms: what was
// added since would be added again, with every turn.
func TestInteropWithinAMillisecond(t *testing.T) {
	const ideal = 1000 + 200*100
	assert.InDelta(t, ideal, turns(t, nil), 100)
	twice := turns(t, func(script string) string {
		return strings.Replace(script, "local whole = math.floor(b.last)", "local whole = b.last", 1)
	})
	assert.Greater(t, twice, int64(ideal+10_000), "which is what happens otherwise")
	t.Logf("with broken times %d were admitted in place of %d", twice, ideal)
}
