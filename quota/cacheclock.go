package quota

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// clock tells the time since it was made, in nanoseconds. Reading the machine's clock takes longer than all the rest of a
// warm lookup, so those go by a copy that a timer renews. The timer runs only while the copy is read: a cache that nobody
// asks holds nothing that keeps it from the garbage collector.
type clock struct {
	start time.Time
	every time.Duration
	// copied is 0 while the timer is stopped. Its lowest bit is set once it was read since the last tick.
	copied atomic.Int64

	mu struct {
		sync.Mutex
		timer *time.Timer
	}
}

// ticksPerTTL makes a TTL at most 1/64 longer.
const ticksPerTTL = 64

const stopped = math.MaxInt64 // later than everything, and odd: read

func (c *clock) init(ttl time.Duration) {
	c.start = time.Now()
	c.every = min(ttl/ticksPerTTL, time.Second)
}

// now is even, and not 0.
func (c *clock) now() int64 { return (int64(time.Since(c.start)) + 2) &^ 1 }

// coarse is now as of the last tick, or the end of time once the clock was stopped.
func (c *clock) coarse() int64 {
	if t := c.copied.Load(); t&1 != 0 {
		return t
	}
	return c.firstRead()
}

func (c *clock) firstRead() int64 {
	for {
		switch t := c.copied.Load(); {
		case t == 0:
			return c.run()
		case t&1 != 0:
			return t
		case c.copied.CompareAndSwap(t, t|1):
			return t | 1
		}
	}
}

func (c *clock) run() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.copied.Load(); t != 0 {
		return t
	}
	t := c.now() | 1
	c.copied.Store(t)
	if c.mu.timer == nil {
		c.mu.timer = time.AfterFunc(c.every, c.tick)
	} else {
		c.mu.timer.Reset(c.every)
	}
	return t
}

func (c *clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.copied.Load()
	if t == stopped || t&1 == 0 && c.copied.CompareAndSwap(t, 0) {
		return
	}
	c.copied.Store(c.now())
	c.mu.timer.Reset(c.every)
}

// stop ends the timer for good.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copied.Store(stopped)
	if c.mu.timer != nil {
		c.mu.timer.Stop()
	}
}
