// Package judge says what a fleet of limiters admitted too much or too little, from the calls that it was asked, and what
// other designs would have admitted of the same calls.
//
// It is pure: times are nanoseconds after the start of a run, and nothing here reads a clock.
package judge

import (
	"cmp"
	"slices"
)

// A Limit is the bucket that the fleet shares.
type Limit struct {
	Capacity int64
	Rate     float64 // tokens per nanosecond
}

// A Call is one call for one token.
type Call struct {
	Start   int64 // the clock read before the call
	End     int64 // and after it; the decision fell between the two
	Replica int
	Allowed bool
}

// Sort brings calls into the order in which they were made.
func Sort(calls []Call) {
	slices.SortStableFunc(calls, func(a, b Call) int { return cmp.Compare(a.Start, b.Start) })
}
