package demo

import (
	"math"
	"time"
)

// A reading is the time of the store, read between two readings of this process' clock.
type reading struct {
	before, after time.Time
	server        time.Time
}

// resolution is that of a store's clock.
const resolution = time.Microsecond

// promised is by how much the clocks of a store and its replicas may run apart for the bound to hold.
const promised = 0.005

// ahead is by what fraction the store's clock ran at most faster than ours from one reading to another. The bound is about
// the store's clock, which refills the bucket; calls are timed by ours. In exact mode the tenth of a token that a
// clock gains in a few seconds would look like a broken bound.
func ahead(from, to reading) float64 {
	switch {
	case from.before.IsZero() && to.before.IsZero(): // the same clock
		return 0
	case from.before.IsZero() || to.before.IsZero(): // nobody knows
		return promised
	}
	here := to.before.Sub(from.after)
	there := to.server.Sub(from.server) + resolution
	if here <= 0 {
		return promised
	}
	return math.Max(0, float64(there)/float64(here)-1)
}
