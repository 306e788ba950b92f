// Package quota says whose limit is which: the [Limit] value, and the [Source] that answers with the limit of a tenant.
//
// A source stands on the path of every decision, so it has to answer from memory. [Fixed] does; a source that asks a
// database must be put behind a cache.
package quota

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxTokens is the largest Capacity and the largest Refill: 2^53-1, the last integer up to which every count is exact in
// the float64 numbers of Redis' Lua.
const MaxTokens int64 = 1<<53 - 1

// ErrInvalid is matched (errors.Is) by every error of [Limit.Validate].
var ErrInvalid = errors.New("quota: invalid limit")

// A Limit is the shape of one token bucket: at most Capacity tokens, of which Refill are added evenly every Per.
//
// From an idle start a token bucket lets Capacity + Refill*t/Per tokens pass in t: in its first second a limit of 10 with
// 10 a second passes 20, as every token bucket does. The zero Limit refuses everything.
type Limit struct {
	// Capacity is the most tokens that the bucket holds (the burst), 0 to MaxTokens. 0 refuses everything: a blocked tenant.
	Capacity int64
	// Refill is the number of tokens added every Per, 0 to MaxTokens. 0 never refills.
	Refill int64
	// Per is the time in which Refill tokens are added. It must be positive where Refill is.
	Per time.Duration
}

// Unlimited is the limit of a tenant without one: every call is allowed and nothing is asked of Redis. It is a value of
// its own that no other limit can be mistaken for: its Capacity is above [MaxTokens].
var Unlimited = Limit{Capacity: math.MaxInt64, Refill: math.MaxInt64, Per: 1}

// PerSecond is the limit of refill tokens a second with bursts of capacity: PerSecond(2, 20) is "20 at 2/s" in this module's
// documents and messages.
func PerSecond(refill, capacity int64) Limit {
	return Limit{Capacity: capacity, Refill: refill, Per: time.Second}
}

// PerMinute is the limit of refill tokens a minute with bursts of capacity.
func PerMinute(refill, capacity int64) Limit {
	return Limit{Capacity: capacity, Refill: refill, Per: time.Minute}
}

// IsUnlimited reports whether l is [Unlimited].
func (l Limit) IsUnlimited() bool { return l == Unlimited }

// Validate reports what is wrong with l, naming the field and the bound. The error matches [ErrInvalid].
func (l Limit) Validate() error {
	switch {
	case l.IsUnlimited():
		return nil
	case l.Capacity < 0 || l.Capacity > MaxTokens:
		return fmt.Errorf("%w: Capacity is %d, must be 0 to %d", ErrInvalid, l.Capacity, MaxTokens)
	case l.Refill < 0 || l.Refill > MaxTokens:
		return fmt.Errorf("%w: Refill is %d, must be 0 to %d", ErrInvalid, l.Refill, MaxTokens)
	case l.Per < 0 || (l.Per == 0 && l.Refill > 0):
		return fmt.Errorf("%w: Per is %v, must be positive where Refill is", ErrInvalid, l.Per)
	}
	return nil
}

// PerMillisecond is the refill rate in tokens per millisecond, the unit of what is stored in Redis.
func (l Limit) PerMillisecond() float64 {
	if l.Refill <= 0 || l.Per <= 0 {
		return 0
	}
	return float64(l.Refill) / (float64(l.Per) / 1e6)
}

// String gives l as "20 at 2/1s", for logs and tests.
func (l Limit) String() string {
	switch {
	case l.IsUnlimited():
		return "unlimited"
	case l.Capacity == 0:
		return "blocked"
	case l.Refill == 0:
		return fmt.Sprintf("%d, no refill", l.Capacity)
	}
	return fmt.Sprintf("%d at %d/%v", l.Capacity, l.Refill, l.Per)
}
