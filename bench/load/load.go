// Package load is an open-loop driver: calls are due on a constant schedule, whatever became of those before, as users do not
// wait for each other.
//
// A closed loop that finds the limiter slow asks less, and so hides how many would have waited (coordinated omission). Here the
// time of a call runs from when it was due. What is left out is the driver's own lateness: sleep is no better than a
// millisecond, and on a busy machine worse, which is not the limiter's fault. So a call begins when it was due or when its
// caller was through with the call before, whichever is later, as if the caller had been awake (Lindley's recursion), and how
// late the caller in truth was is counted apart.
//
// What it does not do: spin. At rates where a sleeping caller awakes for each call, caches are cold, as they are in a service.
package load

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Schedule is Calls calls at Rate a second, made by Callers in turn, so that each has its own schedule. Callers must be
// enough for those that wait: Rate times the longest wait.
type Schedule struct {
	Rate    float64
	Calls   int
	Callers int
}

// A Result is what came of a schedule. Histograms are in nanoseconds, of three digits, up to 100 s.
type Result struct {
	Latency *hdrhistogram.Histogram // of calls, see the package
	Late    *hdrhistogram.Histogram // of the driver: how much later than in Latency calls began
	Elapsed time.Duration
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(100*time.Second), 3) }

// Run makes the calls, and returns when all have returned. The i-th is call(i), from 0 on; calls run side by side. Under
// testing/synctest the schedule is one of the bubble's time.
func (s Schedule) Run(call func(i int)) Result {
	results := make([]Result, s.Callers)
	start := time.Now()
	var wg sync.WaitGroup
	for c := range s.Callers {
		results[c] = Result{Latency: newHistogram(), Late: newHistogram()}
		wg.Go(func() {
			var l line
			for i := c; i < s.Calls; i += s.Callers {
				due := time.Duration(math.Round(float64(i) / s.Rate * float64(time.Second)))
				time.Sleep(due - time.Since(start))
				began := time.Now()
				call(i)
				latency, begin := l.pass(due, time.Since(began))
				record(results[c].Latency, latency)
				record(results[c].Late, began.Sub(start)-begin)
			}
		})
	}
	wg.Wait()
	all := Result{Latency: newHistogram(), Late: newHistogram(), Elapsed: time.Since(start)}
	for _, r := range results {
		all.Latency.Merge(r.Latency)
		all.Late.Merge(r.Late)
	}
	return all
}

// A line is that of one caller's calls, each of which begins when it is due and those before it are over. Times are since the
// start of the schedule.
type line struct{ free time.Duration }

// pass returns how long a call was on its way that took so long by itself, and when it began.
func (l *line) pass(due, took time.Duration) (latency, begin time.Duration) {
	begin = max(due, l.free)
	l.free = begin + took
	return l.free - due, begin
}

// record notes what is beyond the histogram's range as its end.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(1, int64(d)), h.HighestTrackableValue()))
}

// String gives the quantiles of the latency.
func (r Result) String() string {
	q := func(p float64) time.Duration { return time.Duration(r.Latency.ValueAtQuantile(p)) }
	return fmt.Sprintf("%d calls in %v: p50 %v, p99 %v, p99.9 %v, most %v", r.Latency.TotalCount(), r.Elapsed.Round(time.Millisecond),
		q(50), q(99), q(99.9), time.Duration(r.Latency.Max()))
}
