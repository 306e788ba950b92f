package demo

import (
	"cmp"
	"math"
	"slices"
	"time"

	oracle "github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/quota"
	"golang.org/x/time/rate"
)

// A result is what comes out of a run. Times are in nanoseconds in JSON.
type result struct {
	Replicas int    `json:"replicas"`
	Store    string `json:"store"` // "memory" or "redis"
	Traffic  string `json:"traffic"`
	Capacity int64  `json:"capacity"`
	Refill   int64  `json:"refill"` // a second
	Seed     uint64 `json:"seed"`

	Elapsed     time.Duration `json:"elapsed_ns"`
	Interrupted bool          `json:"interrupted"`

	Offered   int64 `json:"offered"`
	Admitted  int64 `json:"admitted"`
	Refused   int64 `json:"refused"`
	Degraded  int64 `json:"degraded"`  // of the refused, because the store did not answer
	Undecided int64 `json:"undecided"` // errors

	Ideal int64 `json:"ideal"` // what one central bucket would have admitted
	Naive int64 `json:"naive"` // what separate in-process limiters would have

	Overshoot  float64 `json:"overshoot"` // tokens, at least: see oracle.Proved
	Bound      int64   `json:"bound"`
	BoundHeld  bool    `json:"bound_held"`
	Undershoot int64   `json:"undershoot"`  // admitted below the ideal
	ClockAhead float64 `json:"clock_ahead"` // fraction by which the store's clock ran at most faster than ours

	StoreCalls       int64   `json:"store_calls"` // draws and returns
	CallsPerAdmitted float64 `json:"calls_per_admitted"`
	Waited           int64   `json:"waited"` // admitted calls that waited for the store
	WaitedShare      float64 `json:"waited_share"`

	P50  time.Duration `json:"p50_ns"` // of Allow
	P99  time.Duration `json:"p99_ns"`
	Late time.Duration `json:"late_p99_ns"` // by how much calls were made later than planned

	PerRequest perRequest      `json:"per_request"`
	PerReplica []replicaResult `json:"per_replica"`

	maxOvershoot float64 // Bound as a fraction of the capacity
}

// perRequest is a limiter that asks the store for every call, of the same calls: it admits what the ideal does. Its times are
// those of the draws of this run.
type perRequest struct {
	StoreCalls       int64         `json:"store_calls"`
	CallsPerAdmitted float64       `json:"calls_per_admitted"`
	P50              time.Duration `json:"p50_ns"`
	P99              time.Duration `json:"p99_ns"`
}

type replicaResult struct {
	Offered    int64 `json:"offered"`
	Admitted   int64 `json:"admitted"`
	Refused    int64 `json:"refused"`
	StoreCalls int64 `json:"store_calls"`
}

// newResult judges a run that is over. clockAhead is by how much the store's clock ran at most faster than ours.
func newResult(f *fleet, elapsed time.Duration, clockAhead float64) result {
	bound := f.bound()
	r := result{
		Replicas: f.settings.replicas, Store: f.shared.kind(), Traffic: f.traffic, Seed: f.seed,
		Capacity: f.limit.Capacity, Refill: f.limit.Refill, Elapsed: elapsed,
		Bound: bound.Tokens, ClockAhead: clockAhead, maxOvershoot: bound.MaxOvershoot,
	}
	var calls []oracle.Call
	var took, late, trips []int64
	for _, rep := range f.replicas {
		var here replicaResult
		var own []oracle.Call
		for _, c := range rep.calls {
			if c.answer == notMade {
				continue
			}
			here.Offered++
			switch c.answer {
			case allowedHere:
				here.Admitted++
			case allowedByStore:
				here.Admitted++
				r.Waited++
			case degraded:
				here.Refused++
				r.Degraded++
			case refused:
				here.Refused++
			case undecided:
				r.Undecided++
			}
			own = append(own, oracle.Call{
				Start: time.Duration(c.start), End: time.Duration(c.end), Cost: 1, Allowed: c.answer.allowed(),
			})
			took, late = append(took, c.end-c.start), append(late, c.start-c.due)
		}
		r.Naive += naive(own, f.limit)
		calls = append(calls, own...)
		here.StoreCalls = rep.limiter.Stats().StoreCalls()
		trips = append(trips, rep.store.draws()...)
		r.PerReplica = append(r.PerReplica, here)
		r.Offered += here.Offered
		r.Admitted += here.Admitted
		r.Refused += here.Refused
		r.StoreCalls += here.StoreCalls
	}
	r.judge(calls, f.limit)
	r.CallsPerAdmitted = ratio(r.StoreCalls, r.Admitted)
	r.WaitedShare = ratio(r.Waited, r.Admitted)
	r.P50, r.P99 = percentiles(took)
	_, r.Late = percentiles(late)

	r.PerRequest.StoreCalls = r.Offered
	r.PerRequest.CallsPerAdmitted = ratio(r.Offered, r.Ideal)
	r.PerRequest.P50, r.PerRequest.P99 = percentiles(trips)
	return r
}

// judge compares the calls with the bound, and with one bucket that is asked for each of them the moment it is made.
func (r *result) judge(calls []oracle.Call, l quota.Limit) {
	r.Ideal = admitted(calls, oracle.NewBucket(l).Take)
	r.Undershoot = max(0, r.Ideal-r.Admitted)

	byStore := l
	byStore.Per = time.Duration(float64(l.Per) / (1 + r.ClockAhead))
	over := max(0, oracle.Proved(calls, byStore))
	// A clock of a resolution refills up to so much too early in any one window; the rest is rounding.
	slack := l.PerMillisecond()*resolution.Seconds()*1000 + 1e-6
	r.BoundHeld = over <= float64(r.Bound)+slack
	r.Overshoot = math.Round(over*1000) / 1000
}

// naive is how many of a replica's calls an in-process limiter of its own would have admitted, for the whole limit.
func naive(calls []oracle.Call, l quota.Limit) int64 {
	limiter := rate.NewLimiter(rate.Limit(l.PerMillisecond()*1000), int(l.Capacity))
	epoch := time.Unix(0, 0)
	return admitted(calls, func(at time.Duration, cost int64) bool { return limiter.AllowN(epoch.Add(at), int(cost)) })
}

// admitted is how many of the calls a limiter admits that is asked for them in the order in which they were made. It sorts calls.
func admitted(calls []oracle.Call, take func(at time.Duration, cost int64) bool) (n int64) {
	slices.SortStableFunc(calls, func(a, b oracle.Call) int { return cmp.Compare(a.Start, b.Start) })
	for _, c := range calls {
		if take(c.Start, c.Cost) {
			n++
		}
	}
	return n
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// percentiles are the 50th and the 99th. It sorts ns.
func percentiles(ns []int64) (p50, p99 time.Duration) {
	if len(ns) == 0 {
		return 0, 0
	}
	slices.Sort(ns)
	at := func(p int) time.Duration { return time.Duration(ns[(len(ns)-1)*p/100]) }
	return at(50), at(99)
}
