package demo

import (
	"context"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
)

// shared is where the replicas meet: one bucket.
type shared interface {
	// kind is "memory" or "redis".
	kind() string
	// store is the bucket as one more replica has it, over a connection of its own.
	store(ctx context.Context) (lease.Store, error)
	// look reads the bucket for the spectators. It is no call of a replica.
	look(ctx context.Context, key lease.Key, terms lease.Terms) (lease.State, error)
	// clock reads the time by which the bucket is refilled.
	clock(ctx context.Context, key lease.Key) (reading, error)
	// drop removes the bucket.
	drop(ctx context.Context, key lease.Key) error
	close()
}

// memory is a shared bucket in this process.
type memory struct {
	bucket *membucket.Store
	delay  time.Duration
}

func newMemory(delay time.Duration) *memory {
	return &memory{bucket: membucket.New(), delay: delay}
}

func (m *memory) kind() string { return "memory" }

func (m *memory) store(context.Context) (lease.Store, error) {
	return &distant{Store: m.bucket, trip: m.delay}, nil
}

func (m *memory) look(ctx context.Context, key lease.Key, terms lease.Terms) (lease.State, error) {
	return m.bucket.Peek(ctx, key, terms)
}

// clock: its time is that of this process.
func (m *memory) clock(context.Context, lease.Key) (reading, error) { return reading{}, nil }

func (m *memory) drop(ctx context.Context, key lease.Key) error { return m.bucket.Reset(ctx, key) }

func (m *memory) close() {}

// distant is a store at the other end of a network: half of the round trip passes before a step, and half after it.
type distant struct {
	lease.Store

	trip time.Duration
}

func (d *distant) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	start := time.Now()
	if err := d.travel(ctx, "acquire", start, d.trip/2); err != nil {
		return lease.Grant{}, err
	}
	grant, err := d.Store.Acquire(ctx, req)
	if err != nil {
		return grant, err
	}
	return grant, d.travel(ctx, "acquire", start, d.trip)
}

func (d *distant) Return(ctx context.Context, items []lease.Return) error {
	start := time.Now()
	if err := d.travel(ctx, "return", start, d.trip/2); err != nil {
		return err
	}
	if err := d.Store.Return(ctx, items); err != nil {
		return err
	}
	return d.travel(ctx, "return", start, d.trip)
}

// travel waits until so long after start. Both halves are measured from the start: a timer is up to a millisecond late, which
// the second half then makes good.
func (d *distant) travel(ctx context.Context, op string, start time.Time, after time.Duration) error {
	wait := after - time.Since(start)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &lease.StoreError{Op: op, Reason: lease.ReasonTimeout, Err: ctx.Err()}
	}
}
