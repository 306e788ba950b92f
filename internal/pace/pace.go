// Package pace holds calls back ahead of a refusal, by what the answers to earlier ones told of their limits.
package pace

import (
	"context"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit/internal/patience"
	"github.com/leaselimit/leaselimit/internal/ratefields"
)

// maxKnown is how many limits a Pacer remembers, and how many routes. Forgetting one costs at most a refusal.
const maxKnown = 1024

// A Pacer spaces calls as far apart as their limits allow. What it knows of a limit is shared by all calls to a target. Which limits a
// call counts against cannot be known ahead: it is taken to be those of the last answer on the same route.
//
// It is safe for concurrent use, and a nil Pacer does nothing.
type Pacer struct {
	mu     sync.Mutex
	limits map[string]*limit   // by target and the limit's Key
	routes map[string][]*limit // by target and route
}

// A limit is guarded by the Pacer's lock.
type limit struct {
	last time.Time // when the last call leaves, or left, that took a turn

	// What the answer to a call told that left at that time.
	left      time.Time
	remaining int64
	gap       time.Duration // between two calls; 0 if there is plenty left
	from      time.Time     // the next call may leave
	wait      time.Duration // this long after from
	until     time.Time     // when all of it is out of date
}

// Hold waits until it is the turn of a call to target by route, and says how long it was held. A call whose turn would come after
// most, or go past ctx's deadline, is not held and takes no turn. It reports false if ctx was done before.
func (p *Pacer) Hold(ctx context.Context, target, route string, most time.Duration) (held time.Duration, ok bool) {
	if p == nil {
		return 0, true
	}
	wait := p.turn(ctx, key(target, route), most)
	if wait <= 0 {
		return 0, true
	}
	return wait, patience.Sleep(ctx, wait)
}

func (p *Pacer) turn(ctx context.Context, route string, most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var (
		now   = time.Now()
		known = p.routes[route]
		turns = make([]time.Time, len(known))
		last  = now
	)
	for i, l := range known {
		if l.inForce(now) {
			turns[i] = l.turn(now)
		}
		if turns[i].After(last) {
			last = turns[i]
		}
	}
	wait := last.Sub(now)
	if wait > most || patience.PastDeadline(ctx, wait) {
		return 0
	}
	// The turn that is taken is each limit's own, even if another one holds the call for longer: calls that do not count against
	// that one need not queue behind this.
	for i, l := range known {
		if !turns[i].IsZero() {
			l.last, l.from, l.wait = turns[i], turns[i], l.gap
		}
	}
	return wait
}

func (l *limit) inForce(now time.Time) bool { return l.gap > 0 && !now.After(l.until) }

// turn is when the next call may leave: later by Jitter if it has to wait, and at once if nobody came when it was time.
func (l *limit) turn(now time.Time) time.Time {
	if l.from.Add(l.wait).After(now) {
		return l.from.Add(patience.Jitter(l.wait))
	}
	return now
}

// Learn takes note of the answer to a call that left at some time: of its limits and, if it is a refusal, of how long that says to
// wait (else 0). An answer that tells of no limit says nothing new.
func (p *Pacer) Learn(target, route string, left time.Time, refused time.Duration, limits []ratefields.Limit) {
	if p == nil || len(limits) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, known := time.Now(), make([]*limit, len(limits))
	for i, told := range limits {
		at := key(target, told.Key)
		l := p.limits[at]
		if l == nil {
			l = new(limit)
			p.limits = keep(p.limits, at, l)
		}
		known[i] = l
		// An answer may be overtaken by that to a later call. But which of the two the server decided first is not known, so the one
		// that says less is taken, as if it were to the later call.
		if !left.Before(l.left) {
			l.left = left
		} else if told.Remaining >= l.remaining {
			continue
		}
		l.learn(told, refused, now)
	}
	p.routes = keep(p.routes, key(target, route), known)
}

func (l *limit) learn(told ratefields.Limit, refused time.Duration, now time.Time) {
	refuses := refused > 0 && (refused+time.Second-1).Truncate(time.Second) == told.Window // of several limits, the one to wait for
	l.remaining, l.gap = told.Remaining, gap(told, refuses)
	// Usually the next one leaves a gap after this one left, not after its answer, which may have taken long for another reason.
	from, wait := l.left, l.gap
	switch {
	case told.Remaining > 0:
	case refuses:
		from, wait = now, refused
		l.left = now // whatever those were told that were admitted before
	default:
		wait = told.Window
	}
	l.until = now.Add(patience.MaxJitter(wait) + regained(told, l.gap))
	if l.last.Add(l.gap).After(from.Add(wait)) { // what was decided for calls that are held already stands
		from, wait = l.last, l.gap
	}
	l.from, l.wait = from, wait
}

// gap is how far apart calls have to be, 0 as long as more than half of the quota remains.
//
// What remains is spread over its window. But windows are told in whole seconds, rounded up, so that one token of a bucket that gets
// 20 in a second is told as one in a second; where the window could be the quota's but for the rounding, calls are spaced as the
// quota says. So are those that follow one which had to wait because nothing remained, or which was refused since it cost more: its
// window is not about others.
func gap(told ratefields.Limit, refuses bool) time.Duration {
	if told.Quota > 0 && told.Remaining > told.Quota/2 {
		return 0
	}
	n := time.Duration(max(1, told.Remaining))
	spread := told.Window / n
	if told.Quota == 0 || told.Period == 0 {
		return spread
	}
	even := told.Period / time.Duration(told.Quota)
	if refuses || told.Remaining == 0 || (told.Window-time.Second)/n < even {
		return min(spread, even)
	}
	return spread
}

// regained is how long it takes, if nobody calls, until more than half of the quota remains. That is not known if the quota is not, but
// it takes no longer than a window.
func regained(told ratefields.Limit, gap time.Duration) time.Duration {
	longest := max(told.Window, told.Period)
	if n := time.Duration(told.Quota/2 - told.Remaining + 1); n > 0 && gap < longest/n {
		return gap * n
	}
	return longest
}

// keep puts v into m in place of any other, if m is full.
func keep[V any](m map[string]V, key string, v V) map[string]V {
	if m == nil {
		m = make(map[string]V)
	}
	if _, there := m[key]; !there && len(m) >= maxKnown {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = v
	return m
}

func key(target, name string) string { return target + "\x00" + name }
