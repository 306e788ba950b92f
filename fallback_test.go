package leaselimit

import (
	"math"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

// CL3: whoever reads the clock first does not always get the lock first. Times that alternate must not refill twice.
func TestCL3_TimesOutOfOrderDoNotRefillTwice(t *testing.T) {
	var f fallback
	s := share{capacity: 10, rate: 100.0 / 1e9}
	admitted := 0
	for i := range int64(1000) {
		now := int64(time.Hour)
		if i%2 == 1 {
			now += int64(100 * time.Millisecond)
		}
		if ok, _, _ := f.take(s, now, 1); ok {
			admitted++
		}
	}
	assert.LessOrEqual(t, admitted, 20)
	assert.GreaterOrEqual(t, admitted, 10)
}

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		replicas       int
		limit          quota.Limit
		capacity, rate float64 // a second
	}{
		{0, quota.PerSecond(100, 40), 10, 25},
		{1, quota.PerSecond(100, 40), 40, 100},
		{10, quota.PerSecond(100, 40), 4, 10},
		{10, quota.PerSecond(100, 5), 1, 10}, // at least a token
		{3, quota.Limit{Capacity: 10}, 3, 0},
	} {
		l := &Limiter{cfg: Config{Replicas: tt.replicas}}
		got := l.share(tt.limit)
		assert.InDelta(t, tt.capacity, got.capacity, 1e-9)
		assert.InDelta(t, tt.rate, got.rate*1e9, 1e-9)
	}
}

func TestFallback(t *testing.T) {
	const sec = int64(time.Second)
	s := share{capacity: 4, rate: 2.0 / 1e9}
	var f fallback
	for i, tt := range []struct {
		at, cost int64
		ok       bool
		left     int64
		retry    time.Duration
	}{
		{100 * sec, 1, true, 3, 0},
		{100 * sec, 3, true, 0, 0},
		{100 * sec, 1, false, 0, 500 * time.Millisecond},
		{100*sec + sec/4, 1, false, 0, 250 * time.Millisecond},
		{100*sec + sec/2, 1, true, 0, 0},
		{100*sec + sec/2, 4, false, 0, 2 * time.Second},
		{100*sec + sec/2, 5, false, 0, retryClosed}, // more than the share: not before the store is back
		{200 * sec, 4, true, 0, 0},
	} {
		ok, left, retry := f.take(s, tt.at, tt.cost)
		assert.Equal(t, tt.ok, ok, "step %d", i)
		assert.Equal(t, tt.left, left, "step %d", i)
		assert.Equal(t, tt.retry, retry, "step %d", i)
	}
	f.reset()
	left, retry := f.peek(s, 200*sec)
	assert.Equal(t, int64(4), left)
	assert.Zero(t, retry)

	f.take(s, 200*sec, 4)
	slow := share{capacity: 4, rate: 1e-30}
	_, _, retry = f.take(slow, 200*sec, 1)
	assert.Equal(t, time.Duration(math.MaxInt64-1), retry, "too long for the type, yet not never")
	_, _, retry = f.take(share{capacity: 4}, 200*sec, 1)
	assert.Equal(t, retryClosed, retry, "without refill the store may still come back")
}
