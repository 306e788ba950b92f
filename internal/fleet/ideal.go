package fleet

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
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

// Call is one call of a limiter. Its decision fell between Start and End.
type Call struct {
	Start, End time.Duration
	Cost       int64
	Allowed    bool
}

// Proved is by how many tokens the calls were at least above the capacity and the refill, in the window where they were the
// most; below 0 if nowhere.
//
// A [Meter] needs a moment for each admission, and all that is known of it is that it lies between Start and End. Neither of
// them will do. Starts bunch the calls that were made together and waited for the store until it had refilled; ends bunch the
// calls that it had decided on one after the other, and whose answers came together. So a call counts to a window only if all
// of it lies inside: wherever the decisions fell, the overshoot was no less. What is lost for it is no more than the calls
// that were in flight at the ends of a window, and calls that spend from a lease are in flight for a microsecond.
func Proved(calls []Call, l quota.Limit) float64 {
	allowed := make([]Call, 0, len(calls))
	for _, c := range calls {
		if c.Allowed {
			allowed = append(allowed, c)
		}
	}
	slices.SortFunc(allowed, func(a, b Call) int { return cmp.Compare(a.End, b.End) })
	lastStart := make([]int, len(allowed)) // indices of allowed, the latest start first
	for i := range lastStart {
		lastStart[i] = i
	}
	slices.SortFunc(lastStart, func(i, j int) int { return cmp.Compare(allowed[j].Start, allowed[i].Start) })

	// A tree over the calls by their ends, of those that start at from or later. best is the most, over the ends, of the tokens
	// up to it less the refill until then.
	leaves := 1 << bits.Len(uint(len(allowed)))
	tokens, best := make([]float64, 2*leaves), slices.Repeat([]float64{math.Inf(-1)}, 2*leaves)
	rate, most := l.PerMillisecond()/1e6, math.Inf(-1)
	for _, k := range lastStart {
		c, i := allowed[k], k+leaves
		tokens[i], best[i] = float64(c.Cost), float64(c.Cost)-rate*float64(c.End)
		for i /= 2; i > 0; i /= 2 {
			tokens[i] = tokens[2*i] + tokens[2*i+1]
			best[i] = max(best[2*i], tokens[2*i]+best[2*i+1])
		}
		most = max(most, best[1]+rate*float64(c.Start))
	}
	return most - float64(l.Capacity)
}
