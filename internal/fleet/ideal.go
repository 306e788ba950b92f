package fleet

import (
	"time"

	"github.com/leaselimit/leaselimit/quota"
)

// Bucket is one token bucket that everybody asks for every call: the ideal that a fleet is measured against.
type Bucket struct {
	limit  quota.Limit
	tokens float64
	last   time.Duration
}

// NewBucket returns a full bucket at time 0.
func NewBucket(l quota.Limit) *Bucket { return &Bucket{limit: l, tokens: float64(l.Capacity)} }

// Take spends cost at time t, which does not go back.
func (b *Bucket) Take(t time.Duration, cost int64) bool {
	grown := b.tokens + float64(t-b.last)/1e6*b.limit.PerMillisecond()
	b.tokens, b.last = min(float64(b.limit.Capacity), grown), t
	if b.tokens+1e-9 < float64(cost) {
		return false
	}
	b.tokens -= float64(cost)
	return true
}

// Meter is the oracle of overshoot: a leaky bucket that fills by what is admitted and drains at the limit's rate. How far
// its peak is above the capacity is by how much, in the worst window of any length, more was admitted than an ideal bucket
// can.
type Meter struct {
	limit quota.Limit
	level float64
	last  time.Duration
	peak  float64
}

// NewMeter returns an empty meter at time 0.
func NewMeter(l quota.Limit) *Meter { return &Meter{limit: l} }

// Admit notes n tokens admitted at time t. A time before the last one counts as the last one.
func (m *Meter) Admit(t time.Duration, n int64) {
	if t > m.last {
		m.level = max(0, m.level-float64(t-m.last)/1e6*m.limit.PerMillisecond())
		m.last = t
	}
	m.level += float64(n)
	m.peak = max(m.peak, m.level)
}

// Overshoot is the most, over all windows so far, that was admitted above capacity + refill*t.
func (m *Meter) Overshoot() float64 { return m.peak - float64(m.limit.Capacity) }
