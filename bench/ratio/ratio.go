// Package ratio measures how much longer one thing takes than another, on a machine that does other things meanwhile.
//
// The two run in turns of a few milliseconds, so that what slows the machine slows both, and the median over many rounds
// drops those in which it did not. A ratio still is of one kind of machine: caches and clocks differ.
package ratio

import (
	"slices"
	"sync"
	"time"
)

// Work makes n calls, from callers 0 on at the same time.
type Work func(caller, n int)

// A Meter says how to measure.
type Meter struct {
	Rounds  int           // an odd number has a true median
	Turn    time.Duration // how long one of the two runs at a time, about
	Callers int
}

// Of is the median over the rounds of how much longer a call of a takes than one of b.
func (m Meter) Of(a, b Work) float64 {
	na, nb := m.calls(a), m.calls(b)
	ratios := make([]float64, m.Rounds)
	for r := range ratios {
		var ta, tb float64
		if r%2 == 0 { // who comes first finds the caches of the other
			ta, tb = m.perCall(a, na), m.perCall(b, nb)
		} else {
			tb, ta = m.perCall(b, nb), m.perCall(a, na)
		}
		ratios[r] = ta / tb
	}
	return Median(ratios)
}

// calls is how many take about a turn.
func (m Meter) calls(w Work) int {
	const most = 1 << 40
	for n := 100; ; n *= 2 {
		if d := time.Duration(m.perCall(w, n) * float64(n)); d >= m.Turn/2 || n > most {
			return max(1, int(float64(n)*float64(m.Turn)/float64(d)))
		}
	}
}

// perCall is nanoseconds per call of each caller.
func (m Meter) perCall(w Work, n int) float64 {
	var wg sync.WaitGroup
	start := time.Now()
	for c := range m.Callers {
		wg.Go(func() { w(c, n) })
	}
	wg.Wait()
	return float64(time.Since(start)) / float64(n)
}

// Median of values, which it sorts.
func Median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}
