package tune

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxAttack is the largest capacity that is attacked: an attack spends it several times.
const maxAttack = 200_000

// choices are the settings that are tried: around the budget and the share that the user accepts, and beyond both, to show what
// they would gain.
func (s *settings) choices() (all []choice) {
	hold := max(1, s.limit.Capacity/int64(2*s.place.Replicas)) // the default of Config.MaxHold
	for _, b := range ascending(0, s.budget/2, s.budget, min(1, max(0.05, 2*s.budget))) {
		for _, share := range ascending(0.1, 0.25, 0.5, 1, min(1, s.budget+s.burstLoss)) {
			for _, size := range ascending(0, max(1, hold/16), hold/4, hold) {
				all = append(all, choice{b, share, size})
			}
		}
	}
	return all
}

// places are where the recommended settings are tried, too: one thing at a time is other than it is at s.place.
func (s *settings) places() (all []place) {
	p := s.place
	add := func(q place) {
		if !slices.Contains(all, q) {
			all = append(all, q)
		}
	}
	for _, n := range ascending(max(1, p.Replicas/4), max(1, p.Replicas/2), p.Replicas, 2*p.Replicas, 4*p.Replicas) {
		add(place{n, p.Load, p.RTT})
	}
	for _, load := range ascending(0.1, 0.5, 0.9, 1.5, 5, p.Load) {
		add(place{p.Replicas, load, p.RTT})
	}
	if s.redis != "" {
		return all
	}
	rtt := cmp.Or(p.RTT, time.Millisecond)
	for _, rtt := range ascending(p.RTT, rtt/4, min(time.Second, 4*rtt), min(time.Second, 16*rtt)) {
		add(place{p.Replicas, p.Load, rtt})
	}
	return all
}

// ascending is the values in order, each once. Fractions that differ by rounding alone are one.
func ascending[T int | int64 | float64 | time.Duration](values ...T) []T {
	slices.Sort(values)
	return slices.CompactFunc(values, func(a, b T) bool { return math.Abs(float64(a-b)) <= 1e-9*float64(max(a, b)) })
}

// sweep tries all choices at the place of l, and the best of them at the other places. done is told how many runs of how many were
// made.
func (l *lab) sweep(ctx context.Context, done func(n, of int)) (r result, err error) {
	choices, places := l.choices(), l.places()
	attacks := map[[2]float64]*float64{}
	if l.limit.Capacity <= maxAttack {
		for _, c := range choices {
			attacks[[2]float64{c.Budget, c.Share}] = new(float64)
		}
	}
	var made atomic.Int64
	total := len(choices) + len(places) + len(attacks)
	tell := func() { done(int(made.Add(1)), total) }

	r = result{settings: l.settings, Rows: make([]row, len(choices)), Elsewhere: make([]row, len(places))}
	var jobs []func() error
	for i, c := range choices {
		jobs = append(jobs, func() (err error) {
			r.Rows[i], err = l.run(ctx, c, l.place)
			return err
		})
	}
	for c, into := range attacks {
		jobs = append(jobs, func() (err error) {
			*into, err = l.attack(choice{Budget: c[0], Share: c[1]}, l.place.Replicas)
			return err
		})
	}
	if err := l.all(ctx, jobs, tell); err != nil {
		return r, fmt.Errorf("after %d of %d runs: %w", made.Load(), total, err)
	}
	for i := range r.Rows {
		r.Rows[i].Attack = attacks[[2]float64{r.Rows[i].Budget, r.Rows[i].Share}]
	}
	r.choose()

	jobs = nil
	for i, p := range places {
		jobs = append(jobs, func() (err error) {
			r.Elsewhere[i], err = l.run(ctx, r.Best.choice, p)
			return err
		})
	}
	if err := l.all(ctx, jobs, tell); err != nil {
		return r, fmt.Errorf("after %d of %d runs: %w", made.Load(), total, err)
	}
	return r, nil
}

// all does the jobs: simulations side by side, runs on Redis one after the other, so that none slows the others down. It ends early
// at the first error, or when ctx is done.
func (l *lab) all(ctx context.Context, jobs []func() error, done func()) error {
	workers := 1
	if l.rdb == nil {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				if err := jobs[i](); err != nil {
					cancel(err)
					return
				}
				done()
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
