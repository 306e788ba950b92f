package leaselimit_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A replica that spends what it leased before, and then the whole bucket, admits the budget above the limit; and says so.
func TestStatsMeasureTheOvershoot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := limited(quota.PerSecond(100, 100))
		cfg.MaxOvershoot, cfg.LeaseShare, cfg.LeaseSize, cfg.Replicas = 0.5, 0.5, 50, 1
		lim := newLimiter(t, membucket.New(), cfg)
		require.True(t, call(t, lim, "acme", 1).Allowed)
		assert.Zero(t, lim.Stats().Overshoot)
		time.Sleep(time.Second)
		n := calls(t, lim, "acme", 200)
		s := lim.Stats()
		assert.Equal(t, 150, n)
		assert.Greater(t, s.Overshoot, 0.2)
		assert.LessOrEqual(t, s.Overshoot, s.MaxOvershoot)
	})
}

// What was admitted under a larger limit is no overshoot of a smaller one, and what was overshoot is as much after a change.
func TestOvershootIsOfTheLimitThatStood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limit := quota.PerSecond(100, 1000)
		cfg := limited(limit)
		cfg.Limits = quota.SourceFunc(func(context.Context, string) (quota.Limit, error) { return limit, nil })
		lim := newLimiter(t, membucket.New(), cfg)
		require.Equal(t, 900, calls(t, lim, "acme", 900))
		limit = quota.PerSecond(1, 10)
		time.Sleep(20 * time.Second)
		require.Equal(t, 10, calls(t, lim, "acme", 20))
		require.Zero(t, lim.Stats().Overshoot)

		limit = quota.PerSecond(100, 100)
		cfg.MaxOvershoot, cfg.LeaseShare, cfg.LeaseSize, cfg.Replicas = 0.5, 0.5, 50, 1
		lim = newLimiter(t, membucket.New(), cfg)
		require.True(t, call(t, lim, "acme", 1).Allowed)
		time.Sleep(time.Second)
		require.Equal(t, 150, calls(t, lim, "acme", 200))
		before := lim.Stats().Overshoot
		require.NotZero(t, before)
		limit = quota.PerSecond(100, 1000)
		call(t, lim, "acme", 1)
		require.InDelta(t, before, lim.Stats().Overshoot, 0)
	})
}

// Plus must not forget a field that is added later.
func TestStatsPlusAddsEveryField(t *testing.T) {
	var a leaselimit.Stats
	v := reflect.ValueOf(&a).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int64, reflect.Int:
			f.SetInt(int64(i + 1))
		case reflect.Float64:
			f.SetFloat(0.5)
		case reflect.Map:
			f.Set(reflect.ValueOf(map[lease.Reason]int64{lease.ReasonOOM: 2}))
		default:
			f.SetBool(true)
		}
	}
	sum := reflect.ValueOf(a.Plus(a))
	for i := range sum.NumField() {
		switch sum.Field(i).Interface().(type) {
		case int64:
			if sum.Type().Field(i).Name == "Replicas" { // the larger one
				continue
			}
			assert.Equal(t, int64(2*(i+1)), sum.Field(i).Int(), sum.Type().Field(i).Name)
		case time.Duration, int: // the larger one
			assert.Equal(t, int64(i+1), sum.Field(i).Int(), sum.Type().Field(i).Name)
		}
	}
	sumOfOne := leaselimit.Stats{}.Plus(a)
	assert.True(t, sumOfOne.Degraded)
	assert.True(t, sumOfOne.BreakerOpen)
	assert.Equal(t, map[lease.Reason]int64{lease.ReasonOOM: 4}, a.Plus(a).Failures)
	assert.InDelta(t, 0.5, sumOfOne.Overshoot, 0)
	assert.InDelta(t, 0.5, sumOfOne.MaxOvershoot, 0)
}
