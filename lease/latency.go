package lease

import (
	"math"
	"sync/atomic"
	"time"
)

// LatencyBounds are the upper bounds of [Latency.Under].
var LatencyBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond,
}

// A [Latency] counts in buckets of two kinds. The fine ones are those of Prometheus' native histograms: bucket i holds what is
// above 2^((i-1)/8) s and at most 2^(i/8) s, so a quantile is off by 9 % at most.
const (
	LatencySchema = 3               // 2^3 buckets for each power of two
	LatencyZero   = 1.0 / (1 << 20) // seconds; up to here is in no fine bucket
	perOctave     = 1 << LatencySchema
	lowest        = -20*perOctave + 1 // the first bucket above LatencyZero
	fineBuckets   = 32 * perOctave    // up to 2^12 s, over an hour
)

// Latency is how long calls took.
type Latency struct {
	Count int64
	Sum   time.Duration
	Under [len(LatencyBounds)]int64 // calls that took at most the bound, each with those before it
	Zero  int64                     // calls that took at most LatencyZero
	fine  [fineBuckets]int64
}

// Fine yields the fine buckets that hold calls: their index in Prometheus' schema [LatencySchema] and their count.
func (l *Latency) Fine(yield func(index int, n int64) bool) {
	for i, n := range l.fine {
		if n > 0 && !yield(i+lowest, n) {
			return
		}
	}
}

// Add adds the calls of o.
func (l *Latency) Add(o *Latency) {
	l.Count += o.Count
	l.Sum += o.Sum
	l.Zero += o.Zero
	for i, n := range o.Under {
		l.Under[i] += n
	}
	for i, n := range o.fine {
		l.fine[i] += n
	}
}

// Quantile is how long the fraction q of the calls took at most, to 9 %; 0 without calls.
func (l *Latency) Quantile(q float64) time.Duration {
	rank, seen := int64(math.Ceil(q*float64(l.Count))), l.Zero
	if l.Count == 0 || rank <= seen {
		return 0
	}
	last := 0
	for i, n := range l.Fine {
		last = i
		if seen += n; seen >= rank {
			break
		}
	}
	return seconds(math.Exp2(float64(last) / perOctave))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// recorder is a live Latency.
type recorder struct {
	sum, zero atomic.Int64
	classic   [len(LatencyBounds) + 1]atomic.Int64
	fine      [fineBuckets]atomic.Int64
}

func (r *recorder) observe(d time.Duration) {
	r.sum.Add(int64(d))
	i := 0
	for i < len(LatencyBounds) && d > LatencyBounds[i] {
		i++
	}
	r.classic[i].Add(1)
	if d.Seconds() <= LatencyZero {
		r.zero.Add(1)
		return
	}
	at := int(math.Ceil(math.Log2(d.Seconds())*perOctave)) - lowest
	r.fine[min(max(at, 0), fineBuckets-1)].Add(1)
}

func (r *recorder) read() (l Latency) {
	// What is counted while this reads may be in one kind of bucket and not in the other: the count is of those in the fine
	// ones, since a native histogram whose buckets do not add up is refused.
	l.Sum, l.Zero = time.Duration(r.sum.Load()), r.zero.Load()
	l.Count = l.Zero
	for i := range r.fine {
		l.fine[i] = r.fine[i].Load()
		l.Count += l.fine[i]
	}
	n := int64(0)
	for i := range LatencyBounds {
		n = min(l.Count, n+r.classic[i].Load())
		l.Under[i] = n
	}
	return l
}
