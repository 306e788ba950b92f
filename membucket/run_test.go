package membucket

import (
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"pgregory.net/rapid"
)

// classes is how many buckets a run has.
const classes = 3

// run is a random history: where its clock begins, the terms that its steps choose from, and the steps.
type run struct {
	start int64 // µs
	terms []lease.Terms
	ops   []op
}

// op is a step, after the clock was moved. What the numbers mean depends on the kind.
type op struct {
	kind     string
	step     time.Duration
	key      int
	terms    int
	a, b, c  int64
	n        [2]int64
	refs     [2]int // past grants, counted from the last
	skew     int64  // of an epoch that is named wrongly
	horizon  time.Duration
	replicas int
	held     int64
}

func drawRun(t *rapid.T) run {
	return run{
		start: rapid.SampledFrom([]int64{1_000_000_000_000, 1_757_000_000_123_456, 1_757_000_000_000_000, 2_000_000_000_000_000}).Draw(t, "start"),
		terms: drawChoice(t),
		ops:   rapid.SliceOfN(rapid.Custom(drawOp), 1, 40).Draw(t, "ops"),
	}
}

// drawChoice is terms of which half differ from the first in one respect, as those of a limit that is changed do.
func drawChoice(t *rapid.T) []lease.Terms {
	terms := rapid.SliceOfN(rapid.Custom(drawTerms), 1, 3).Draw(t, "terms")
	for i, other := range terms[1:] {
		one := terms[0]
		switch rapid.SampledFrom([]string{"all", "all", "all", "limit", "budget", "tau"}).Draw(t, "differs") {
		case "all":
			one = other
		case "limit":
			one.Limit = other.Limit
		case "budget":
			one.Budget = other.Budget
		case "tau":
			one.TTL = other.TTL
		}
		terms[i+1] = one
	}
	return terms
}

func drawTerms(t *rapid.T) lease.Terms {
	capacity := rapid.SampledFrom([]int64{0, 1, 3, 10, 10, 100, 100, 1000, 1 << 40, quota.MaxTokens}).Draw(t, "capacity")
	refill := rapid.SampledFrom([]int64{0, 1, 1, 3, 7, 100, 10000, quota.MaxTokens}).Draw(t, "refill")
	per := rapid.SampledFrom([]time.Duration{
		1, time.Millisecond, time.Second, time.Second, time.Second, 7 * time.Second, time.Minute, 24 * time.Hour,
	}).Draw(t, "per")
	tau := rapid.SampledFrom([]time.Duration{
		1, time.Millisecond, 1500 * time.Microsecond, time.Second, 2 * time.Second, 30 * time.Second, time.Hour,
	}).Draw(t, "tau")
	part := rapid.SampledFrom([]int64{0, 0, 1, 2, 4, 10})
	return lease.Terms{
		Limit:  quota.Limit{Capacity: capacity, Refill: refill, Per: per},
		Budget: share(capacity, part.Draw(t, "budget")),
		Share:  share(capacity, part.Draw(t, "share")),
		TTL:    tau,
	}
}

// share is a part of n, or none of it.
func share(n, part int64) int64 {
	if part == 0 {
		return 0
	}
	return n / part
}

func drawOp(t *rapid.T) op {
	count := rapid.OneOf(rapid.Int64Range(0, 4), rapid.Int64Range(0, 120), rapid.SampledFrom([]int64{1 << 30, quota.MaxTokens}))
	ref := rapid.IntRange(0, 4)
	return op{
		kind: rapid.SampledFrom([]string{
			"acquire", "acquire", "acquire", "acquire", "acquire", "return", "return", "take", "peek", "reset", "plain",
		}).Draw(t, "kind"),
		step:     drawStep(t),
		key:      rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "key"),
		terms:    rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "terms"),
		a:        count.Draw(t, "a"),
		b:        count.Draw(t, "b"),
		c:        count.Draw(t, "c"),
		n:        [2]int64{count.Draw(t, "n"), count.Draw(t, "m")},
		refs:     [2]int{ref.Draw(t, "ref"), ref.Draw(t, "ref2")},
		skew:     rapid.SampledFrom([]int64{0, 0, 0, 0, 0, 1, -1000}).Draw(t, "skew"),
		horizon:  rapid.SampledFrom([]time.Duration{0, 0, 0, 1, 1500 * time.Microsecond, time.Second, time.Hour}).Draw(t, "horizon"),
		replicas: rapid.IntRange(0, 6).Draw(t, "replicas"),
		held:     rapid.Int64Range(0, 2).Draw(t, "held"),
	}
}

// drawStep is how far the clock goes before an op: often nowhere, often around a border of trust windows, sometimes back.
func drawStep(t *rapid.T) time.Duration {
	d := rapid.SampledFrom([]time.Duration{
		0, 0, time.Microsecond, 999 * time.Microsecond, time.Millisecond, 333 * time.Millisecond, time.Second, 2 * time.Second,
		5 * time.Second, 29 * time.Second, 30 * time.Second, 61 * time.Second, time.Hour, 50 * 24 * time.Hour,
		-time.Microsecond, -time.Second, -10 * time.Minute,
	}).Draw(t, "step")
	if rapid.Bool().Draw(t, "odd") {
		d += time.Duration(rapid.Int64Range(0, 999).Draw(t, "µs")) * time.Microsecond
	}
	return d
}
