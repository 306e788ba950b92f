package quota

import (
	"errors"
	"time"
)

// CacheStats is what a [Cache] has counted since it was made, but for Entries, InFlight, Queued and OldestStale, which are
// as of now. Calls answered from memory by what is not due are not counted: that would take half as long as the lookup. They
// are all calls less StaleServes, Fallbacks and Misses.
type CacheStats struct {
	StaleServes int64 // answered from memory with what was due, or with what lookups have failed for since
	Fallbacks   int64 // answered from memory with Default or an error, after a lookup that failed with nothing to keep
	Misses      int64 // had to wait for a lookup

	Lookups       int64 // asked of the source, for misses and refreshes
	Refreshes     int64 // wanted in the background
	LookupErrors  int64 // of which failed, invalid limits and timeouts included; also a call that waited for Timeout
	InvalidLimits int64 // of which were an invalid limit, by the source's answer or its error
	Negative      int64 // lookups that ended with ErrUnknownTenant
	Evictions     int64 // entries that made room

	Entries     int           // tenants in memory
	InFlight    int           // lookups under way, or pausing after a failure
	Queued      int           // lookups that wait for one of MaxLookups
	OldestStale time.Duration // age of the oldest answer that is kept although lookups fail; 0 without one
}

// counters are the part of CacheStats that is not counted in entries.
type counters struct {
	stale, fallbacks                     int64 // of entries that are gone
	misses, lookups, refreshes           int64
	errors, invalid, negative, evictions int64
}

// gone takes over what was counted in an entry that was taken out. Calls that found it before and count later are lost.
func (n *counters) gone(e *entry) {
	if e != nil {
		n.add(e)
	}
}

func (n *counters) add(e *entry) {
	if e.kind == failed {
		n.fallbacks += e.served.Load()
	} else {
		n.stale += e.served.Load()
	}
}

// Stats are the counts so far. It goes through all entries: once a second is fine, once a call is not.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, now := c.mu.count, c.clock.now()
	var oldest int64
	for _, e := range c.table.ring {
		n.add(e)
		if e.kind == kept {
			oldest = max(oldest, now-e.at)
		}
	}
	queued := 0
	for _, f := range c.mu.flights {
		if !f.started {
			queued++
		}
	}
	return CacheStats{
		StaleServes: n.stale, Fallbacks: n.fallbacks, Misses: n.misses, Lookups: n.lookups, Refreshes: n.refreshes, LookupErrors: n.errors, InvalidLimits: n.invalid,
		Negative: n.negative, Evictions: n.evictions,
		Entries: len(c.table.ring), InFlight: c.mu.working, Queued: queued, OldestStale: time.Duration(oldest),
	}
}

// log is what was last logged.
type log struct {
	failures  int // lookups in a row, of any tenant, that failed other than by an invalid limit
	invalidAt int64
}

// failuresToLog is how many lookups in a row have to fail before it is the source that fails, not a packet that was lost.
const failuresToLog = 3

// recordLocked counts the outcome err of a lookup, which has become e. say logs it, if that is due.
func (c *Cache) recordLocked(e *entry, err error) (say func()) {
	n, l, logger := &c.mu.count, &c.mu.log, c.opts.Logger
	switch {
	case e.fails > 0 && errors.Is(err, ErrInvalid):
		n.errors++
		n.invalid++
		if now := c.clock.now(); l.invalidAt == 0 || now-l.invalidAt >= int64(time.Minute) {
			l.invalidAt = now
			return func() {
				logger.Warn("quota: the source answers with an invalid limit", "tenant", e.tenant, "error", err)
			}
		}
	case e.fails > 0:
		n.errors++
		if l.failures++; l.failures == failuresToLog {
			return func() { logger.Warn("quota: lookups fail", "error", err) }
		}
	default:
		if e.kind == unknown {
			n.negative++
		}
		failures := l.failures
		if l.failures = 0; failures >= failuresToLog {
			return func() { logger.Info("quota: lookups succeed again") }
		}
	}
	return nothing
}

func nothing() {}
