package demo

import (
	"context"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
)

// A snapshot is how a run stands.
type snapshot struct {
	elapsed, duration time.Duration
	rows              []row
	bound             leaselimit.Bound
	bucket            *lease.State // nil if it cannot be read

	overshoot, undershoot int64 // measured so far, over all replicas
}

// A row is how a replica stands.
type row struct{ offered, admitted, refused, storeCalls, held int64 }

func (r row) plus(o row) row {
	return row{
		offered: r.offered + o.offered, admitted: r.admitted + o.admitted, refused: r.refused + o.refused,
		storeCalls: r.storeCalls + o.storeCalls, held: r.held + o.held,
	}
}

func (s snapshot) total() row {
	var sum row
	for _, r := range s.rows {
		sum = sum.plus(r)
	}
	return sum
}

// lookTimeout bounds the look at the bucket. The view goes on without.
const lookTimeout = 100 * time.Millisecond

func (f *fleet) snapshot(elapsed time.Duration) snapshot {
	s := snapshot{elapsed: min(elapsed, f.duration), duration: f.duration, bound: f.bound()}
	s.overshoot, s.undershoot = f.tally.read()
	for _, r := range f.replicas {
		st := r.limiter.Stats()
		s.rows = append(s.rows, row{
			offered:  st.Allowed() + st.Refused() + st.Errors,
			admitted: st.Allowed(), refused: st.Refused(), storeCalls: st.StoreCalls(), held: st.TokensHeld,
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	if state, err := f.look(ctx); err == nil {
		s.bucket = &state
	}
	return s
}

// watch shows the run in v until stop is closed, and then once more.
func (f *fleet) watch(v view, start time.Time, stop <-chan struct{}) {
	if v.every() == 0 {
		return
	}
	ticker := time.NewTicker(v.every())
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			v.end(f.snapshot(time.Since(start)))
			return
		case <-ticker.C:
			v.show(f.snapshot(time.Since(start)))
		}
	}
}
