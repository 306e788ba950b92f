// Package membucket is a lease.Store in memory: for development and tests, for a limiter without Redis, and as the reference
// that the Lua scripts of redisbucket are tested against. It gives the same answers to the token.
//
// The buckets live and die with the process, and no other process shares them. Limiters that are handed the same [Store]
// share it like replicas share a Redis.
package membucket

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/lease"
)

// Store keeps the buckets in a map. It is safe for concurrent use and starts no goroutine: there is nothing to close.
//
// A bucket is dropped some time after it has become full again and nothing of it is out, which changes no answer. Each
// new bucket drops a few such others, so the map stays within a small factor of the buckets that are still filling.
type Store struct {
	clock func() float64 // ms; called under mu, so that the time of the store never goes back between two steps

	mu      sync.Mutex
	buckets map[lease.Key]record
	present map[string]map[string]float64 // by class and replica: when it is forgotten, in ms
}

var (
	_ lease.Store  = (*Store)(nil)
	_ lease.Census = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	return &Store{clock: monotonic(), buckets: make(map[lease.Key]record)}
}

// monotonic is the wall clock as of now that from here on runs by the monotonic clock, with the resolution of Redis' TIME.
func monotonic() func() float64 {
	start := time.Now()
	return func() float64 {
		now := start.Add(time.Since(start)).UnixMicro()
		return wire.Clock(now/1e6, now%1e6)
	}
}

// Acquire draws tokens, as [lease.Store] says.
func (s *Store) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	if err := wire.Check(ctx, "acquire", wire.Acquire(req)); err != nil {
		return lease.Grant{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquire(req), nil
}

// Return gives tokens back, as [lease.Store] says. An item that is not valid does not keep the others from being returned.
func (s *Store) Return(ctx context.Context, items []lease.Return) error {
	var first error
	for _, item := range items {
		if err := wire.Check(ctx, "return", wire.Return(item)); err != nil {
			first = cmp.Or(first, err)
			continue
		}
		s.mu.Lock()
		s.giveBack(item)
		s.mu.Unlock()
	}
	return first
}

// Take takes all charges or none, as [lease.Store] says.
func (s *Store) Take(ctx context.Context, charges []lease.Charge) (lease.TakeReply, error) {
	if err := wire.Check(ctx, "take", wire.Take(charges)); err != nil {
		return lease.TakeReply{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(charges), nil
}

// Peek reads a bucket, as [lease.Store] says.
func (s *Store) Peek(ctx context.Context, key lease.Key, terms lease.Terms) (lease.State, error) {
	if err := wire.Check(ctx, "peek", wire.Bucket(key, terms)); err != nil {
		return lease.State{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.load(key, s.clock(), wire.TermsOf(terms))
	return lease.State{
		Exists:     b.exists,
		Level:      b.tokens,
		Out:        int64(b.out()),
		RetryAfter: wire.Wait(b.retry(1)),
	}, nil
}

// Reset fills a bucket up, as [lease.Store] says.
func (s *Store) Reset(ctx context.Context, key lease.Key) error {
	if err := wire.Check(ctx, "reset", wire.Key(key)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset(key)
	return nil
}

// Present counts the replicas of a class, as [lease.Census] says.
func (s *Store) Present(ctx context.Context, class, id string, ttl time.Duration) (int, error) {
	if err := wire.Check(ctx, "present", wire.Present(class, id, ttl)); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	if s.present == nil {
		s.present = make(map[string]map[string]float64)
	}
	if s.present[class] == nil {
		s.present[class] = make(map[string]float64)
	}
	there := s.present[class]
	if ttl > 0 {
		there[id] = now + wire.Millis(ttl)
	} else {
		delete(there, id)
	}
	maps.DeleteFunc(there, func(_ string, until float64) bool { return until <= now })
	n := len(there)
	if n == 0 {
		delete(s.present, class)
	}
	return n, nil
}
