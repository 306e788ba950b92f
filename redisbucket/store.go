// Package redisbucket is the lease.Store on Redis: one hash for each bucket, one Lua script for each step.
//
// It works with any client of go-redis: a single server, Sentinel, Cluster, Ring. Redis must be version 5 or newer.
//
// # What is promised
//
//   - A step is sent to be executed once. Where the answer is lost it is not sent again, whatever the retries of the client
//     are set to, because a repeated draw debits twice. (A server that does not know the script is the one exception: it has
//     executed nothing, and gets the script in full.)
//   - Only the time of the server counts, and every key of a script is named in its KEYS.
//   - A reply that makes no sense is an error with [lease.ReasonMalformed], never an admission.
//
// # What is not
//
//   - The deadline of a context is kept only if the client was made with ContextTimeoutEnabled; otherwise the timeouts of the
//     client hold. A lease.Holder does not wait longer than its own timeout either way.
//   - Tenants are readable in the keys, up to a length. A tenant should be an id, not a credential.
//   - The server has to keep its keys: with an eviction policy that takes keys before their time, an evicted bucket is full
//     again.
package redisbucket

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/redis/go-redis/v9"
)

// Store keeps the buckets in Redis. It is safe for concurrent use and holds nothing that would have to be closed.
type Store struct {
	rdb    redis.UniversalClient
	prefix string

	start    time.Time
	reloaded atomic.Int64 // ns after start when the slots of a Cluster were last asked for
}

var (
	_ lease.Store  = (*Store)(nil)
	_ lease.Census = (*Store)(nil)
)

// An Option changes what New makes.
type Option func(*Store)

// WithPrefix sets what all keys of the store begin with, "rl" by default. Stores with different prefixes share nothing. Every
// text will do; bytes other than letters, digits and -_.@:/ are escaped, because a brace would move the hash tag.
func WithPrefix(prefix string) Option {
	return func(s *Store) { s.prefix = string(appendEscaped(nil, prefix, ":/")) }
}

// New returns a store on rdb. It does not own rdb: the caller closes it, after the limiters that use the store. Nothing is
// sent to Redis until a bucket is asked for.
func New(rdb redis.UniversalClient, opts ...Option) *Store {
	s := &Store{rdb: rdb, prefix: "rl", start: time.Now()}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Acquire draws tokens, as [lease.Store] says.
func (s *Store) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	if err := wire.Check(ctx, "acquire", wire.Acquire(req)); err != nil {
		return lease.Grant{}, err
	}
	v, err := s.run(ctx, acquireScript, []string{s.RedisKey(req.Key)}, acquireArgs(req))
	if err != nil {
		return lease.Grant{}, err
	}
	g, err := parseGrant(v, req)
	if err != nil {
		return lease.Grant{}, malformed("acquire", err)
	}
	return g, nil
}

// Take takes all charges or none, as [lease.Store] says.
func (s *Store) Take(ctx context.Context, charges []lease.Charge) (lease.TakeReply, error) {
	if err := wire.Check(ctx, "take", wire.Take(charges)); err != nil {
		return lease.TakeReply{}, err
	}
	keys := make([]string, len(charges))
	for i, c := range charges {
		keys[i] = s.RedisKey(c.Key)
	}
	v, err := s.run(ctx, takeScript, keys, takeArgs(charges))
	if err != nil {
		return lease.TakeReply{}, err
	}
	r, err := parseTake(v, charges)
	if err != nil {
		return lease.TakeReply{}, malformed("take", err)
	}
	return r, nil
}

// Peek reads a bucket, as [lease.Store] says.
func (s *Store) Peek(ctx context.Context, key lease.Key, terms lease.Terms) (lease.State, error) {
	if err := wire.Check(ctx, "peek", wire.Bucket(key, terms)); err != nil {
		return lease.State{}, err
	}
	v, err := s.run(ctx, peekScript, []string{s.RedisKey(key)}, appendTerms(nil, terms))
	if err != nil {
		return lease.State{}, err
	}
	st, err := parseState(v, terms)
	if err != nil {
		return lease.State{}, malformed("peek", err)
	}
	return st, nil
}

// Reset fills a bucket up, as [lease.Store] says.
func (s *Store) Reset(ctx context.Context, key lease.Key) error {
	if err := wire.Check(ctx, "reset", wire.Key(key)); err != nil {
		return err
	}
	v, err := s.run(ctx, resetScript, []string{s.RedisKey(key)}, nil)
	if err != nil {
		return err
	}
	if err := parseReset(v); err != nil {
		return malformed("reset", err)
	}
	return nil
}

// Present counts the replicas of a class, as [lease.Census] says, in a sorted set under a key of its own.
func (s *Store) Present(ctx context.Context, class, id string, ttl time.Duration) (int, error) {
	if err := wire.Check(ctx, "present", wire.Present(class, id, ttl)); err != nil {
		return 0, err
	}
	v, err := s.run(ctx, censusScript, []string{s.CensusKey(class)}, []any{id, ttl.Milliseconds()})
	if err != nil {
		return 0, err
	}
	n, err := parseCensus(v)
	if err != nil {
		return 0, malformed("present", err)
	}
	return n, nil
}
