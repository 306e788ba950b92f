package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/lease"
)

// A fleet is the replicas of a run, and what they share.
type fleet struct {
	*settings
	shared   shared
	tenant   string // nobody had it before: no run is spoilt by another
	replicas []*replica
	tally    *tally
}

// A replica is one limiter and the calls that are made to it.
type replica struct {
	limiter *leaselimit.Limiter
	store   *meter
	calls   []call
	next    atomic.Int64 // the first call that nobody has taken on
	failed  atomic.Pointer[error]
}

// A call is one call to a replica. Whoever takes it on fills it in; it may be read once the run is over.
type call struct {
	due        int64 // all three in nanoseconds after the start
	start, end int64
	answer     answer
}

type answer uint8

const (
	notMade answer = iota
	allowedHere
	allowedByStore
	refused
	degraded  // the store did not answer, so it was refused
	undecided // an error
)

func (a answer) allowed() bool { return a == allowedHere || a == allowedByStore }

func newFleet(ctx context.Context, s *settings, log *slog.Logger) (*fleet, error) {
	f := &fleet{settings: s, tenant: "demo-" + rand.Text(), tally: newTally(s.limit)}
	if s.redis == "" {
		f.shared = newMemory(s.latency)
	} else {
		remote, err := newRemote(s.redis, s.prefix)
		if err != nil {
			return nil, err
		}
		f.shared = remote
	}
	for i, due := range newPlan(s) {
		r, err := f.newReplica(ctx, due, log.With("replica", i+1))
		if err != nil {
			f.shared.close()
			return nil, err
		}
		f.replicas = append(f.replicas, r)
	}
	return f, nil
}

func (f *fleet) newReplica(ctx context.Context, due []int64, log *slog.Logger) (*replica, error) {
	store, err := f.shared.store(ctx)
	if err != nil {
		return nil, err
	}
	if f.wrap != nil {
		store = f.wrap(store)
	}
	r := &replica{store: &meter{Store: store}, calls: make([]call, len(due))}
	for i, at := range due {
		r.calls[i].due = at
	}
	cfg := f.config()
	cfg.Logger = log
	if r.limiter, err = leaselimit.New(r.store, cfg); err != nil {
		return nil, cli.Usagef("%v", err) // the flags are all that can be wrong
	}
	return r, nil
}

// key is the bucket of the run.
func (f *fleet) key() lease.Key {
	return lease.Key{Tenant: lease.TenantName(f.tenant), Class: "default"}
}

// bound is the bound in force.
func (f *fleet) bound() leaselimit.Bound { return f.replicas[0].limiter.Bound(f.tenant) }

// look reads the bucket for the spectators.
func (f *fleet) look(ctx context.Context) (lease.State, error) {
	b := f.bound()
	return f.shared.look(ctx, f.key(), lease.Terms{Limit: b.Limit, Budget: b.Tokens, Share: b.Share, TTL: f.leaseTTL})
}

// closeTimeout bounds the end of a run, whose store may have gone.
const closeTimeout = 3 * time.Second

// close ends the replicas, which return their leases, and removes the bucket.
func (f *fleet) close() error {
	// Not the context of the run, which an interrupt has ended.
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	errs := make([]error, len(f.replicas))
	var wg sync.WaitGroup
	for i, r := range f.replicas {
		wg.Go(func() { errs[i] = r.limiter.Close(ctx) })
	}
	wg.Wait()
	if err := f.shared.drop(ctx, f.key()); err != nil {
		errs = append(errs, fmt.Errorf("the bucket of this run stays until it expires: %w", err))
	}
	f.shared.close()
	return errors.Join(errs...)
}
