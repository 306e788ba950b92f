package lease

import (
	"time"
	"weak"

	"github.com/leaselimit/leaselimit/localbucket"
)

// What the external tests of this package, which may import membucket, see of its inside.

// SetWall replaces the pool's wall clock, before the pool is used.
func SetWall(p *Pool, wall func() time.Duration) {
	p.wall = func() int64 { return int64(wall()) }
}

// MaxRounds and Floor are constants of the protocol.
const (
	MaxRounds  = maxRounds
	Floor      = floor
	MaxHanging = maxHanging
)

// Deadlines are the ends of h's leases, in the pool's time.
func (h *Holder) Deadlines() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ends []time.Duration
	for l := range h.local.All() {
		ends = append(ends, time.Duration(l.Deadline()))
	}
	return ends
}

// Waiting is the number of calls in h's queue.
func (h *Holder) Waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seeLocked().waiters)
}

// Available is the number of tokens that can be spent now.
func (h *Holder) Available() int64 { return h.local.Available(h.pool.exact()) }

// StallTimers stops the ticker of the coarse clock and the timer of the sweeps, as a machine does that is too busy to run them.
func (p *Pool) StallTimers() {
	p.stopTicks()
	p.expiry.stop()
}

// LastLease is the youngest of h's leases, and does not keep it.
func (h *Holder) LastLease() (last weak.Pointer[localbucket.Lease]) {
	for l := range h.local.All() {
		last = weak.Make(l)
	}
	return last
}

// Leases lists h's leases.
func (h *Holder) Leases() string { return h.local.String() }

// Timers is the number of timers that the pool and h have set.
func (p *Pool) Timers(holders ...*Holder) (n int) {
	p.expiry.mu.Lock()
	if len(p.expiry.heap) > 0 {
		n++
	}
	p.expiry.mu.Unlock()
	for _, h := range holders {
		h.mu.Lock()
		if h.seeLocked().pressed != nil {
			n++
		}
		h.mu.Unlock()
	}
	return n
}

// Locked runs f under h's lock.
func (h *Holder) Locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// LookAtClock sees whether the machine was suspended.
func (p *Pool) LookAtClock() { p.lookAtClock() }

// PressAgain has h pressed, to ask after d, and when the tick waits for the lock already, has it ask after d once more. It takes d.
func (h *Holder) PressAgain(d time.Duration) {
	h.Locked(func() {
		for i := range 2 {
			if i > 0 {
				time.Sleep(d)
			}
			now := h.pool.exact()
			h.busyLocked().nextAsk = now + int64(d)
			h.pressLocked(&draw{req: AcquireRequest{Horizon: 1}}, now)
		}
	})
}
