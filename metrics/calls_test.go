package metrics_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/metrics"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cable is a store at the end of a cable that takes time and can be pulled out.
type cable struct {
	*membucket.Store

	takes time.Duration
	out   atomic.Bool
}

func (c *cable) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	time.Sleep(c.takes)
	if c.out.Load() {
		return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errors.New("no route to host")}
	}
	return c.Store.Acquire(ctx, req)
}

func TestOB1_AnOutageIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &cable{Store: membucket.New(), takes: 3 * time.Millisecond}
		lim, err := leaselimit.New(store, leaselimit.Config{
			Limits: quota.Fixed(quota.PerSecond(100, 100)), OnFailure: leaselimit.FailOpen, LeaseTTL: time.Second,
		})
		require.NoError(t, err)
		defer lim.Close(t.Context())
		c := metrics.NewCollector(lim)
		callFor := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				_, err := lim.Allow(t.Context(), "tenant")
				require.NoError(t, err)
			}
		}
		callFor(time.Second)
		assert.Zero(t, value(t, c, "leaselimit_degraded", nil))
		assert.Zero(t, value(t, c, "leaselimit_store_calls_total", labels{"op": "acquire", "reason": "refused"}))

		store.out.Store(true)
		callFor(10 * time.Second)
		assert.InDelta(t, 1, value(t, c, "leaselimit_degraded", nil), 0)
		failed := value(t, c, "leaselimit_store_calls_total", labels{"op": "acquire", "reason": "refused"})
		assert.Positive(t, failed)
		admitted := value(t, c, "leaselimit_decisions_total", labels{"source": "fallback", "outcome": "allowed"})
		assert.Greater(t, admitted, 300.0)
		last := lim.StoreStats().Errors[0]
		assert.Equal(t, lease.ReasonRefused, last.Reason)
		assert.Equal(t, "tenant", last.Tenant)
		require.ErrorContains(t, last.Err, "no route to host")

		store.out.Store(false)
		callFor(3 * time.Second)
		assert.Zero(t, value(t, c, "leaselimit_degraded", nil))
		assert.InDelta(t, failed, value(t, c, "leaselimit_store_calls_total", labels{"op": "acquire", "reason": "refused"}), 0)
	})
}

func TestLatencyIsMeasuredAtTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := leaselimit.New(&cable{Store: membucket.New(), takes: 3 * time.Millisecond}, leaselimit.Config{
			Limits: quota.Fixed(quota.PerSecond(100, 100)),
		})
		require.NoError(t, err)
		defer lim.Close(t.Context())
		for i := range 10 {
			_, err := lim.Allow(t.Context(), string(rune('a'+i)))
			require.NoError(t, err)
		}
		_, err = lim.Peek(t.Context(), "a")
		require.NoError(t, err)
		ops := map[string]*dto.Histogram{}
		for _, f := range families(t, metrics.NewCollector(lim)) {
			if f.GetName() == "leaselimit_store_call_duration_seconds" {
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if l.GetName() == "op" {
							ops[l.GetValue()] = m.GetHistogram()
						}
					}
				}
			}
		}
		require.Contains(t, ops, "return", "there before it was used")
		require.Contains(t, ops, "peek")
		require.NotContains(t, ops, "reset", "never used")
		require.Contains(t, ops, "present", "counting the replicas")
		assert.Equal(t, uint64(1), ops["present"].GetSampleCount())
		h := ops["acquire"]
		assert.Equal(t, uint64(10), h.GetSampleCount())
		assert.InDelta(t, 0.030, h.GetSampleSum(), 1e-9)
		for _, b := range h.GetBucket() {
			want := uint64(0)
			if b.GetUpperBound() >= 0.003 {
				want = 10
			}
			assert.Equal(t, want, b.GetCumulativeCount(), b.GetUpperBound())
		}
		// The native buckets: one, which has 3 ms between its bounds.
		require.Len(t, h.GetPositiveSpan(), 1)
		assert.Equal(t, int32(3), h.GetSchema())
		assert.Equal(t, []int64{10}, h.GetPositiveDelta())
		assert.Equal(t, int32(-67), h.GetPositiveSpan()[0].GetOffset(), "2^(-68/8) = 2.76 ms to 2^(-67/8) = 3.01 ms")

		for _, s := range lim.StoreStats().Calls {
			if s.Op == "acquire" {
				assert.InDelta(t, 3e6, s.Latency.Quantile(0.99), 3e5)
			}
		}
	})
}

type labels map[string]string

func families(t *testing.T, c prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	all, err := reg.Gather()
	require.NoError(t, err)
	return all
}

// value is the sum of the series of that name that have these labels. There has to be one.
func value(t *testing.T, c prometheus.Collector, name string, want labels) (sum float64) {
	t.Helper()
	found := false
	for _, s := range gather(t, c) {
		match := s.name == name
		for k, v := range want {
			match = match && s.labels[k] == v
		}
		if match {
			found = true
			sum += s.value
		}
	}
	require.True(t, found, "%s %v", name, want)
	return sum
}
