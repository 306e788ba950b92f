package membucket

import (
	"math"

	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/lease"
)

// The steps are the scripts of the same names in Go. They are called with mu held.

// acquire is scripts/acquire.lua.
func (s *Store) acquire(req lease.AcquireRequest) lease.Grant {
	t := wire.TermsOf(req.Terms)
	b := s.load(req.Key, s.clock(), t)
	for _, r := range req.Reports {
		b.settle(float64(r.Epoch), float64(r.Tokens))
	}

	least, need, want := float64(req.Min), float64(req.Need), float64(req.Want)
	horizon, replicas := wire.Millis(req.Horizon), float64(req.Replicas)
	if replicas < 1 {
		replicas = 4
	}

	waiters := min(need, max(0, b.spendable()))
	if waiters < least {
		waiters = 0
	}
	b.tokens -= waiters
	var wait float64
	if waiters == 0 && least > 0 {
		wait = b.retry(least)
	}

	room := min(b.capacity, b.capacity+b.budget-1) - b.out()
	var surplus, ready, next, first, spacing float64
	if horizon > 0 && b.rate > 0 {
		most := math.Floor(b.tokens + epsilon + float64(b.rate*horizon))
		surplus = max(0, min(want, math.Floor(room), most))
		if surplus > 0 {
			ready = min(surplus, max(0, b.spendable()))
			if waiters == 0 && ready < least {
				ready = 0
			}
			if ready < surplus {
				k := ready + 1
				if waiters == 0 {
					k = max(k, least)
				}
				next = min(surplus, k) - ready
				first = max(0, (k-b.tokens)/b.rate)
				spacing = 1 / b.rate
				if first >= t.Tau {
					surplus, ready, next, first, spacing = 0, 0, 0, 0, 0
				}
			}
		}
	} else if want > 0 && wait == 0 {
		if free := min(t.Share-b.out(), room); free >= 1 {
			most := math.Floor(free / min(4, replicas))
			if req.Held < 1 {
				most = max(1, most)
			}
			surplus = max(0, min(want, most, b.spendable()))
			ready = surplus
		}
	}
	b.tokens -= surplus
	b.cur += surplus

	if waiters > 0 || surplus > 0 || b.dirty || (need == 0 && want == 0) {
		s.save(req.Key, b)
	}
	return lease.Grant{
		Waiters:    int64(waiters),
		Surplus:    int64(surplus),
		Epoch:      int64(b.epoch),
		Ready:      int64(ready),
		Next:       int64(next),
		First:      wire.Wait(first),
		Spacing:    wire.Wait(spacing),
		At:         b.last,
		Level:      b.tokens,
		RetryAfter: wire.Wait(wait),
	}
}

// giveBack is scripts/return.lua.
func (s *Store) giveBack(r lease.Return) {
	b := s.load(r.Key, s.clock(), wire.TermsOf(r.Terms))
	if !b.exists {
		return
	}
	b.settle(float64(r.Epoch), float64(r.Spent))
	unspent := b.settle(float64(r.Epoch), float64(r.Unspent))
	waiters := max(0, float64(r.Waiters)-float64(max(0, b.last-r.At)*b.rate))
	b.credit(unspent + waiters)
	if b.dirty {
		s.save(r.Key, b)
	}
}

// take is scripts/take.lua.
func (s *Store) take(charges []lease.Charge) lease.TakeReply {
	type charged struct {
		bucket

		cost, wait float64
		owe        bool
	}
	now := s.clock()
	buckets := make(map[lease.Key]*charged, len(charges))
	for _, c := range charges {
		b := buckets[c.Key]
		if b == nil {
			b = &charged{bucket: s.load(c.Key, now, wire.TermsOf(c.Terms))}
			buckets[c.Key] = b
		}
		for _, r := range c.Reports {
			b.settle(float64(r.Epoch), float64(r.Tokens))
		}
		b.cost += float64(c.Cost)
		b.owe = b.owe || c.Owe
	}
	allowed := true
	for _, b := range buckets {
		if !b.owe {
			b.wait = b.retry(b.cost)
		}
		allowed = allowed && b.wait == 0
	}
	for key, b := range buckets {
		if allowed {
			b.tokens = max(-b.capacity, b.tokens-b.cost)
		}
		if allowed || b.dirty {
			s.save(key, b.bucket)
		}
	}
	reply := lease.TakeReply{Allowed: allowed, At: now, Levels: make([]lease.Level, len(charges))}
	for i, c := range charges {
		b := buckets[c.Key]
		reply.Levels[i] = lease.Level{Tokens: b.tokens, RetryAfter: wire.Wait(b.wait)}
	}
	return reply
}

// reset is scripts/reset.lua.
func (s *Store) reset(key lease.Key) {
	now := s.clock()
	r, ok := s.get(key, now)
	if !ok {
		return
	}
	b := load(r, true, now, wire.Terms{Capacity: r.capacity, Rate: r.rate, Budget: r.budget, Tau: r.tau})
	if b.out() <= 0 {
		delete(s.buckets, key)
		return
	}
	b.tokens = max(0, b.top())
	s.save(key, b)
}

func (s *Store) load(key lease.Key, now float64, t wire.Terms) bucket {
	r, ok := s.get(key, now)
	return load(r, ok, now, t)
}

// get is the record under key, unless it has expired: as in Redis, when the whole ms of its expiry is past.
func (s *Store) get(key lease.Key, now float64) (record, bool) {
	r, ok := s.buckets[key]
	if ok && r.expired(now) {
		delete(s.buckets, key)
		return record{}, false
	}
	return r, ok
}

func (r record) expired(now float64) bool { return math.Floor(now) > r.expires }

// sweep is how many other records are looked at when one is added. With 2 no more than about half of the map is expired while
// new ones come, and adding one costs a few lookups.
const sweep = 2

func (s *Store) save(key lease.Key, b bucket) {
	now := b.last
	if _, ok := s.buckets[key]; !ok {
		looked := 0
		for k, r := range s.buckets {
			if r.expired(now) {
				delete(s.buckets, k)
			}
			if looked++; looked >= sweep {
				break
			}
		}
	}
	s.buckets[key] = b.stored()
}
