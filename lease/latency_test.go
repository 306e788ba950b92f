package lease

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLatencyBuckets(t *testing.T) {
	var r recorder
	for _, d := range []time.Duration{0, time.Nanosecond, 100 * time.Microsecond, 100*time.Microsecond + 1, time.Second, time.Hour, 300 * time.Hour} {
		r.observe(d)
	}
	l := r.read()
	assert.Equal(t, int64(7), l.Count)
	assert.Equal(t, int64(2), l.Zero)
	assert.Equal(t, int64(3), l.Under[0], "at most 100us")
	assert.Equal(t, int64(4), l.Under[1])
	assert.Equal(t, int64(5), l.Under[len(l.Under)-1])
	assert.Equal(t, time.Hour, l.Quantile(0.8).Truncate(time.Hour))
	var total Latency
	total.Add(&l)
	total.Add(&l)
	assert.Equal(t, int64(14), total.Count)
	assert.Equal(t, 2*l.Sum, total.Sum)
	assert.Equal(t, l.Quantile(0.5), total.Quantile(0.5))
	assert.Zero(t, new(Latency).Quantile(0.99))
}

// Each fine bucket holds what is above the bound before it and at most its own, but for rounding.
func TestFineBucketsAreThoseOfPrometheus(t *testing.T) {
	for d := 2 * time.Microsecond; d < time.Hour; d += d / 7 {
		var r recorder
		r.observe(d)
		l := r.read()
		for i := range l.Fine {
			assert.Less(t, math.Exp2(float64(i-1)/8), d.Seconds()*(1+1e-12), d)
			assert.GreaterOrEqual(t, math.Exp2(float64(i)/8), d.Seconds()*(1-1e-12), d)
		}
	}
}
