package demo

import (
	"sync"
	"time"

	oracle "github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/quota"
)

// A tally measures a run while it goes on: the calls of all replicas in the order of their answers. An answer is late by the way
// back from the store, so what it shows may be off by what is refilled meanwhile; the report at the end is not.
type tally struct {
	mu     sync.Mutex
	meter  *oracle.Meter
	ideal  *oracle.Bucket
	last   time.Duration
	behind int64 // calls that the ideal bucket admitted, less those admitted
}

func newTally(l quota.Limit) *tally {
	return &tally{meter: oracle.NewMeter(l), ideal: oracle.NewBucket(l)}
}

// note takes a call into account that was answered at a time after the start.
func (t *tally) note(at time.Duration, allowed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = max(t.last, at)
	if t.ideal.Take(t.last, 1) {
		t.behind++
	}
	if allowed {
		t.behind--
		t.meter.Admit(t.last, 1)
	}
}

// read is by how many whole tokens more than the limit were admitted in the worst window so far, and by how many fewer than one ideal
// bucket admits.
func (t *tally) read() (overshoot, undershoot int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(max(0, t.meter.Overshoot()+1e-6)), max(0, t.behind)
}
