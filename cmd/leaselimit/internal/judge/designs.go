package judge

import (
	"time"

	"golang.org/x/time/rate"
)

// Ideal is how many of the calls one central token bucket admits that decides on each the moment it is made, in their order:
// as many as a limit can admit. The calls are sorted.
func Ideal(calls []Call, l Limit) int64 {
	var admitted, last int64
	tokens := float64(l.Capacity)
	for _, c := range calls {
		tokens = min(float64(l.Capacity), tokens+float64(c.Start-last)*l.Rate)
		last = c.Start
		if tokens+1e-9 >= 1 {
			tokens--
			admitted++
		}
	}
	return admitted
}

// Naive is how many of the calls are admitted if every replica has an in-process limiter of its own for the whole limit. They
// are golang.org/x/time/rate limiters, asked for the same calls at the same times. The calls are sorted.
func Naive(calls []Call, replicas int, l Limit) int64 {
	limiters := make([]*rate.Limiter, replicas)
	for i := range limiters {
		limiters[i] = rate.NewLimiter(rate.Limit(l.Rate*1e9), int(l.Capacity))
	}
	epoch := time.Unix(0, 0)
	var admitted int64
	for _, c := range calls {
		if limiters[c.Replica].AllowN(epoch.Add(time.Duration(c.Start)), 1) {
			admitted++
		}
	}
	return admitted
}
