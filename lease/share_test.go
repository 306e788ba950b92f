package lease

import (
	"math"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

// CL3: whoever reads the clock first does not always get the lock first. Times that alternate must not refill twice.
func TestCL3_TimesOutOfOrderDoNotRefillTwice(t *testing.T) {
	var b books
	b.begin()
	p := part{capacity: 10, rate: 100.0 / 1e9}
	admitted := 0
	for i := range int64(1000) {
		now := int64(time.Hour)
		if i%2 == 1 {
			now += int64(100 * time.Millisecond)
		}
		b.keep(now, 0, asked{}, quota.Limit{}, p, time.Second)
		if ok, _ := b.take(p, 1); ok {
			admitted++
		}
	}
	assert.LessOrEqual(t, admitted, 20)
	assert.GreaterOrEqual(t, admitted, 10)
}

func TestPartOf(t *testing.T) {
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
		got := partOf(tt.limit, tt.replicas)
		assert.InDelta(t, tt.capacity, got.capacity, 1e-9)
		assert.InDelta(t, tt.rate, got.rate*1e9, 1e-9)
	}
}

func TestShareStepByStep(t *testing.T) {
	const sec = int64(time.Second)
	p := part{capacity: 4, rate: 2.0 / 1e9}
	var b books
	b.begin()
	for i, tt := range []struct {
		at, admitted, cost int64 // admitted by the store or from leases, ever
		ok                 bool
		left               int64
		retry              time.Duration
	}{
		{100 * sec, 0, 1, true, 3, 0},
		{100 * sec, 0, 3, true, 0, 0},
		{100 * sec, 7, 1, false, 0, 500 * time.Millisecond},
		{100 * sec, 7, 1, false, 0, 500 * time.Millisecond},
		{100*sec + sec/4, 7, 1, false, 0, 250 * time.Millisecond},
		{100*sec + sec/2, 7, 1, true, 0, 0},
		{100*sec + sec/2, 7, 4, false, 0, 2 * time.Second},
		{100*sec + sec/2, 7, 5, false, 0, retryUnknown}, // more than the share: not before the store is back
		{200 * sec, 10, 1, true, 0, 0},                  // three by other ways
		{200 * sec, 90, 1, false, 0, 500 * time.Millisecond},
		{201 * sec, 90, 2, true, 0, 0}, // nothing is owed
	} {
		b.keep(tt.at, tt.admitted, asked{}, quota.Limit{}, p, time.Second)
		ok, retry := b.take(p, tt.cost)
		assert.Equal(t, tt.ok, ok, "step %d", i)
		assert.Equal(t, tt.left, b.left(), "step %d", i)
		assert.Equal(t, tt.retry, retry, "step %d", i)
	}
	assert.Equal(t, time.Duration(math.MaxInt64-1), b.retry(part{capacity: 4, rate: 1e-30}, 1), "too long for the type, yet not never")
	assert.Equal(t, retryUnknown, b.retry(part{capacity: 4}, 1), "without refill the store may still come back")
}

func TestAShareIsNotMoreThanWasGranted(t *testing.T) {
	const sec = int64(time.Second)
	p, tau := part{capacity: 4, rate: 8.0 / 1e9}, 10*time.Second
	rate := func(each int64, lacked int64) float64 {
		k := lack{last: lacked, granted: granted{at: sec}}
		for i := range int64(99) {
			k.granted.add((i+2)*sec, each, tau)
		}
		return k.contended(p, tau).rate * 1e9
	}
	assert.InDelta(t, 8, (&lack{last: sec, granted: granted{at: sec}}).contended(p, tau).rate*1e9, 1e-6, "nobody knows yet")
	assert.InDelta(t, 8, rate(3, 50*sec), 1e-6, "nobody was refused of late")
	assert.InDelta(t, 3, rate(3, 99*sec), 0.01)
	assert.InDelta(t, 8, rate(9, 99*sec), 1e-6)
	assert.InDelta(t, 2, rate(1, 99*sec), 1e-6, "a quarter stays")
}

func TestACountIsBelievedWhenItRises(t *testing.T) {
	var c census
	for i, tt := range []struct{ said, believed int64 }{
		{1, 0}, {2, 2}, {4, 4}, {4, 4}, {1, 4}, {4, 4}, {3, 4}, {3, 3}, {50, 50}, {1, 50}, {1, 1},
	} {
		c.answered(tt.said)
		assert.Equal(t, tt.believed, c.count.Load(), "step %d", i)
	}
	var many census
	many.answered(50)
	assert.EqualValues(t, 50, many.count.Load(), "more than are assumed")
}
