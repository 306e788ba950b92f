package redisbucket_test

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var unitKeys = flag.Int("unit-keys", 2000, "how many buckets TestUnits makes; docs/scale.md has it with 100000")

// TestUnits measures what docs/scale.md reckons with: the memory of a bucket in Redis, and the time that a step keeps the server
// busy. It asserts the memory of a key alone.
func TestUnits(t *testing.T) {
	rdb := redistest.Start(t).Client(t, func(o *redis.Options) { o.PoolSize = 32 })
	store := redisbucket.New(rdb)
	request := func(i int) lease.AcquireRequest {
		limit := quota.PerSecond(50, 200)
		return lease.AcquireRequest{
			Key:   lease.Key{Tenant: fmt.Sprintf("tenant-%08d", i), Class: "default"},
			Terms: lease.Terms{Limit: limit, Budget: 20, Share: 50, TTL: 30 * time.Second},
			Min:   1, Need: 1, Want: 12, Replicas: 4,
		}
	}
	each := func(do func(i int) error) time.Duration {
		begin := time.Now()
		var wg sync.WaitGroup
		for k := range 32 {
			wg.Go(func() {
				for i := k; i < *unitKeys; i += 32 {
					if !assert.NoError(t, do(i)) {
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(begin)
	}
	number := func(section, field string) float64 {
		text, err := rdb.Info(t.Context(), section).Result()
		require.NoError(t, err)
		_, rest, found := strings.Cut(text, field)
		require.True(t, found, "no %s in %s", field, text)
		v, err := strconv.ParseFloat(rest[:strings.IndexAny(rest, ",\r\n")], 64)
		require.NoError(t, err)
		return v
	}
	step := func(name string, do func(i int) error) {
		require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
		cpu := func() float64 { return number("cpu", "used_cpu_user:") + number("cpu", "used_cpu_sys:") }
		busy := cpu()
		took := each(do)
		t.Logf("%s: %.1f us in the script, %.1f us of the server's processors in all, %.0f a second by 32 callers", name,
			number("commandstats", "cmdstat_evalsha:calls="+fmt.Sprint(*unitKeys)+",usec=")/float64(*unitKeys),
			1e6*(cpu()-busy)/float64(*unitKeys), float64(*unitKeys)/took.Seconds())
	}

	_, err := store.Acquire(t.Context(), request(*unitKeys)) // loads the script
	require.NoError(t, err)
	require.NoError(t, store.Return(t.Context(), []lease.Return{{Key: request(0).Key, Terms: request(0).Terms, Unspent: 1, Epoch: 1}}))
	require.NoError(t, rdb.Del(t.Context(), store.RedisKey(request(0).Key)).Err())
	each(func(i int) error { // every connection, with its buffers
		_, err := store.Peek(t.Context(), request(i).Key, request(i).Terms)
		return err
	})
	t.Logf("a connection: %.0f B of the server", number("memory", "mem_clients_normal:")/number("clients", "connected_clients:"))
	before := number("memory", "used_memory:")
	grants := make([]lease.Grant, *unitKeys)
	step("first draw", func(i int) (err error) {
		grants[i], err = store.Acquire(t.Context(), request(i))
		return err
	})
	perKey := (number("memory", "used_memory:") - before) / float64(*unitKeys)
	usage, err := rdb.MemoryUsage(t.Context(), store.RedisKey(request(7).Key)).Result()
	require.NoError(t, err)
	t.Logf("%d buckets: %.0f B each of used_memory, %d B by MEMORY USAGE", *unitKeys, perKey, usage)
	assert.Less(t, usage, int64(300))

	step("draw with a report", func(i int) error {
		req := request(i)
		req.Reports[0] = lease.Report{Epoch: grants[i].Epoch, Tokens: 1}
		_, err := store.Acquire(t.Context(), req)
		return err
	})
	step("return", func(i int) error {
		return store.Return(t.Context(), []lease.Return{{Key: request(i).Key, Terms: request(i).Terms, Epoch: grants[i].Epoch, Unspent: 1}})
	})
	empty := request(0)
	empty.Min, empty.Need, empty.Want = 200, 200, 0
	step("refused draw", func(int) error {
		_, err := store.Acquire(t.Context(), empty)
		return err
	})
}
