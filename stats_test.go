package leaselimit_test

import (
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
