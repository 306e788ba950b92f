package demo

import (
	"context"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit"
)

// workers is how many calls of one replica may be under way at once. At 5000 calls a second that wait 50 ms each, the
// timeout of a store call, it is 250.
const workers = 256

// drive makes the calls of all replicas when they are due, in an open loop: a slow answer does not put off the next call. Calls that
// come late, because this machine cannot keep up, are made nevertheless. It returns when all are answered; once ctx is
// done it makes no further ones.
func (f *fleet) drive(ctx context.Context, start time.Time) {
	var wg sync.WaitGroup
	for _, r := range f.replicas {
		for range min(workers, len(r.calls)) {
			wg.Go(func() { f.work(ctx, r, start) })
		}
	}
	wg.Wait()
}

// work makes calls of r, one after the other, until there are none that nobody has taken on.
func (f *fleet) work(ctx context.Context, r *replica, start time.Time) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		i := int(r.next.Add(1)) - 1
		if i >= len(r.calls) {
			return
		}
		c := &r.calls[i]
		if wait := time.Duration(c.due) - time.Since(start); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		r.make(c, start, f.tenant)
		f.tally.note(time.Duration(c.end), c.answer.allowed())
	}
}

// make makes a call. It has a context of its own: a call that was made is answered, even if the run ends.
func (r *replica) make(c *call, start time.Time, tenant string) {
	c.start = int64(time.Since(start))
	d, err := r.limiter.Allow(context.Background(), tenant)
	c.end = int64(time.Since(start))
	switch {
	case err != nil:
		c.answer = undecided
		r.failed.CompareAndSwap(nil, &err)
	case d.Allowed && d.Source == leaselimit.SourceStore:
		c.answer = allowedByStore
	case d.Allowed:
		c.answer = allowedHere
	case d.Degraded():
		c.answer = degraded
	default:
		c.answer = refused
	}
}

// firstError is why a call was not decided, if one was not.
func (f *fleet) firstError() error {
	for _, r := range f.replicas {
		if err := r.failed.Load(); err != nil {
			return *err
		}
	}
	return nil
}
