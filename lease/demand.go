package lease

import (
	"math"
	"time"
)

// demand is an exponentially weighted moving average, over irregular intervals, of what callers of one tenant ask of this
// replica: admitted or refused, in tokens and in calls, per nanosecond.
type demand struct {
	tokens, calls float32
	pays          bool // whether leasing ahead pays for it, as of the last draw
}

// halfLife of the average. A shorter one takes chance for demand: with an eighth of tau, leases of slow tenants on many
// replicas kept 4 % of the limit from others, with a half 1 %. A longer one is slower to grow leases (docs/adr/0004).
func halfLife(tau time.Duration) float64 {
	return float64(min(tau, max(time.Second, tau/2)))
}

// How many calls must be expected within the trust window for leasing ahead: worth, to begin to lease as many tokens as the
// demand has use for, since fewer calls would leave too many unspent in a replica that others wait for; enough, to go on,
// since what was just above worth is often estimated just below it; and single, to lease one token from a bucket that is as
// good as full, which nobody misses. With fewer calls to come it would be returned more often than spent, and cost more
// calls to the store than it saves (docs/adr/0004).
const (
	worth  = 4
	enough = 2
	single = 1.5
)

// observe adds what was asked for in the last dt nanoseconds, more than none.
func (d *demand) observe(dt, tokens, calls int64, tau time.Duration) {
	keep := math.Exp2(-float64(dt) / halfLife(tau))
	d.tokens = float32(float64(d.tokens)*keep + (1-keep)*float64(tokens)/float64(dt))
	d.calls = float32(float64(d.calls)*keep + (1-keep)*float64(calls)/float64(dt))
}

// expects is how many calls are to come in a trust window.
func (d *demand) expects(tau time.Duration) float64 { return float64(d.calls) * float64(tau) }

// judge decides whether leasing ahead pays.
func (d *demand) judge(tau time.Duration) {
	expected := d.expects(tau)
	d.pays = expected >= worth || (d.pays && expected >= enough)
}

// maxHold is the most surplus that this replica holds of a bucket of this capacity.
func (o *Options) maxHold(capacity int64) int64 {
	if o.MaxHold > 0 {
		return o.MaxHold
	}
	return max(1, capacity/(2*o.replicas()), o.LeaseSize)
}

// horizon is how far ahead a pressed replica may draw, and the pace of its draws: an eighth of the time in which the bucket
// fills, at most a quarter of the trust window.
func (o *Options) horizon(t *Terms) time.Duration {
	most := o.TTL / 4
	rate := t.Limit.PerMillisecond()
	if rate <= 0 {
		return most
	}
	fill := float64(t.Limit.Capacity) / (8 * rate) * float64(time.Millisecond)
	if fill >= float64(most) {
		return most
	}
	return max(floor, time.Duration(fill))
}

// full is the part of the capacity above which one token is leased ahead even where it does not pay: nobody misses it.
const full = 0.9

// target is how much surplus to hold: what is spent in half a trust window, in the bounds of maxHold; a single token where
// leasing does not pay and the bucket is as good as full; nothing otherwise. level is the bucket's as last seen, or below 0
// if it never was.
func (o *Options) target(d *demand, t *Terms, level float64) int64 {
	most := o.maxHold(t.Limit.Capacity)
	switch {
	case o.LeaseSize > 0:
		return min(most, o.LeaseSize)
	case d.pays:
		return int64(max(1, min(float64(most), float64(d.tokens)*float64(o.TTL)/2))) // what is above most may be above an int64
	case level >= full*float64(t.Limit.Capacity) && d.expects(o.TTL) >= single:
		return 1
	}
	return 0
}
