// Package wire holds what every lease.Store of this module has to agree on to the bit: which requests are valid, and the
// units in which they reach the bucket.
//
// A bucket counts in float64: tokens, milliseconds, tokens per millisecond. The Store interface counts in int64 tokens and
// time.Duration.
package wire

import (
	"math"
	"time"

	"github.com/leaselimit/leaselimit/lease"
)

// Terms are lease.Terms in the units of a bucket.
type Terms struct {
	Capacity float64 // tokens
	Rate     float64 // tokens per ms
	Budget   float64 // tokens
	Tau      float64 // ms, whole
	Share    float64 // tokens
}

// TermsOf converts valid terms. The trust window is rounded up to whole milliseconds: a shorter one in the bucket would
// forget a lease that can still be spent.
func TermsOf(t lease.Terms) Terms {
	return Terms{
		Capacity: float64(t.Limit.Capacity),
		Rate:     t.Limit.PerMillisecond(),
		Budget:   float64(t.Budget),
		Tau:      math.Ceil(Millis(t.TTL)),
		Share:    float64(t.Share),
	}
}

// Millis is d in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / 1e6 }

// Clock is a time of a bucket's clock, in ms, from the two parts of Redis' TIME. The conversions keep the compiler from
// fusing the sum, which would round once where Lua rounds twice.
func Clock(seconds, micros int64) float64 {
	return float64(float64(seconds)*1000) + float64(float64(micros)/1000)
}

// Never is a bucket's word for a wait that does not end.
const Never = -1

// Wait converts a wait in ms: rounded up to whole nanoseconds, so that nobody comes too early, and below [lease.Never],
// which stands for [Never] alone. It is for waits of 0 or more, or Never.
func Wait(ms float64) time.Duration {
	if ms == Never {
		return lease.Never
	}
	ns := math.Ceil(ms * 1e6)
	if ns >= float64(lease.Never) {
		return lease.Never - 1
	}
	return time.Duration(ns)
}
