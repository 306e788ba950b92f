package lease

import (
	"sync"
	"sync/atomic"
	"time"
)

// clock is nanoseconds since the pool was made, on the monotonic clock. Wall time serves for one thing: a machine that was
// suspended has a monotonic clock that stood still, and leases that ended meanwhile.
type clock struct {
	base time.Time
	skew atomic.Int64 // how far the wall clock was seen ahead of the monotonic one
	wall func() int64 // nanoseconds since base on the wall clock; replaced in tests

	coarse time.Duration
	ticks  atomic.Int64 // only goes forward
	lag    atomic.Int64 // the furthest that ticks was seen behind
	begin  sync.Once
	finish sync.Once
	quit   chan struct{}
	ended  chan struct{}
}

// suspended is by how much the wall clock has to get ahead of the monotonic one to end all leases.
const suspended = int64(time.Second)

func (c *clock) startClock(coarse time.Duration) {
	c.base = time.Now()
	c.coarse = coarse
	wall := c.base.UnixNano()
	c.wall = func() int64 { return time.Now().UnixNano() - wall }
	c.quit, c.ended = make(chan struct{}), make(chan struct{})
}

// exact reads the clock.
func (c *clock) exact() int64 { return int64(time.Since(c.base)) }

// Now is the time for spends, in nanoseconds since the pool was made. A coarse clock is behind by as much as [clock.slack] tells.
func (c *clock) Now() int64 {
	if t := c.ticks.Load(); t != 0 {
		return t
	}
	return c.first()
}

// first is Now where there are no ticks: of an exact clock, or of a coarse one that has not begun.
func (c *clock) first() int64 {
	if c.coarse == 0 {
		return c.exact()
	}
	c.begin.Do(c.startTicks)
	return c.ticks.Load()
}

// slack is by how much Now may be behind: nothing, or two ticks of a coarse clock, or as much as it has been seen behind.
func (c *clock) slack() int64 {
	if c.coarse == 0 {
		return 0
	}
	return max(2*int64(c.coarse), c.lag.Load())
}

func (c *clock) startTicks() {
	c.ticks.Store(max(1, c.exact()))
	go func() {
		defer close(c.ended)
		t := time.NewTicker(c.coarse)
		defer t.Stop()
		for {
			select {
			case <-c.quit:
				return
			case <-t.C:
				c.tick()
			}
		}
	}()
}

// tick sets the coarse clock. It is the ticker's work, and now and then a spender's: a ticker that does not get to run must not
// stop the time.
func (c *clock) tick() {
	now := c.exact()
	for {
		was := c.ticks.Load()
		if now <= was {
			return
		}
		if c.ticks.CompareAndSwap(was, now) {
			for behind := now - was; ; {
				worst := c.lag.Load()
				if behind <= worst || c.lag.CompareAndSwap(worst, behind) {
					return
				}
			}
		}
	}
}

// stopTicks ends the coarse clock. It stands still from then on.
func (c *clock) stopTicks() {
	c.begin.Do(func() { close(c.ended) }) // never started: it will not be
	c.finish.Do(func() { close(c.quit) })
	<-c.ended
}

// jumped reports whether the machine was suspended since the last call that reported it.
func (c *clock) jumped() bool {
	ahead := c.wall() - c.exact()
	before := c.skew.Load()
	switch {
	case ahead-before > suspended:
		return c.skew.CompareAndSwap(before, ahead)
	case ahead < before: // the wall clock was set back: measure from there
		c.skew.CompareAndSwap(before, ahead)
	}
	return false
}
