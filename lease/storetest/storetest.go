// Package storetest is the conformance suite of lease.Store: what every implementation has to answer, to the token.
package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/adversary"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Fixture is one empty store and its clock.
type Fixture struct {
	Store lease.Store

	// Advance moves the store's clock by d, exactly, and nothing else does.
	Advance func(d time.Duration)
}

// A Harness runs test with a fixture of its own, for instance in a bubble of testing/synctest.
type Harness func(t *testing.T, test func(t *testing.T, f Fixture))

// Run runs the suite: tables of steps, and the attacks of internal/adversary on the bound.
func Run(t *testing.T, h Harness) {
	for _, group := range [][]test{drawTests, leaseTests, pressedTests, returnTests, takeTests, termsTests, edgeTests} {
		for _, tt := range group {
			t.Run(tt.name, func(t *testing.T) {
				h(t, func(t *testing.T, f Fixture) { tt.run(t, &bench{Fixture: f, t: t}) })
			})
		}
	}
	t.Run("Bound", func(t *testing.T) {
		h(t, func(t *testing.T, f Fixture) {
			for seed := range uint64(100) {
				o, err := adversary.Run(seed, f.Store, f.Advance, adversary.Rules{})
				require.NoError(t, err, o.Setting)
				require.False(t, o.Violated(), "overshoot %v, %s", o.Overshoot, o.Setting)
			}
		})
	})
}

type test struct {
	name string
	run  func(t *testing.T, b *bench)
}

// bench is a fixture with the calls of a test in few words. Every call must succeed.
type bench struct {
	Fixture

	t *testing.T
}

// bucket is the bucket of most tests.
var bucket = lease.Key{Tenant: "acme", Class: "default"}

// terms are a limit of capacity at perSecond, with a tau of 10 s.
func terms(capacity, perSecond, budget, share int64) lease.Terms {
	return lease.Terms{Limit: quota.PerSecond(perSecond, capacity), Budget: budget, Share: share, TTL: 10 * time.Second}
}

// near is how close floats have to be here. That two stores agree to the bit is not this suite's to say.
const near = 1e-6

func (b *bench) acquire(req lease.AcquireRequest) lease.Grant {
	b.t.Helper()
	g, err := b.Store.Acquire(b.t.Context(), req)
	require.NoError(b.t, err)
	return g
}

// draw asks for need tokens for one caller.
func (b *bench) draw(terms lease.Terms, need int64) lease.Grant {
	b.t.Helper()
	return b.acquire(lease.AcquireRequest{Key: bucket, Terms: terms, Min: need, Need: need})
}

// borrow asks for want tokens of surplus, for a replica that is alone.
func (b *bench) borrow(terms lease.Terms, want int64, reports ...lease.Report) lease.Grant {
	b.t.Helper()
	req := lease.AcquireRequest{Key: bucket, Terms: terms, Want: want, Replicas: 1}
	copy(req.Reports[:], reports)
	return b.acquire(req)
}

func (b *bench) giveBack(items ...lease.Return) {
	b.t.Helper()
	require.NoError(b.t, b.Store.Return(b.t.Context(), items))
}

func (b *bench) take(charges ...lease.Charge) lease.TakeReply {
	b.t.Helper()
	r, err := b.Store.Take(b.t.Context(), charges)
	require.NoError(b.t, err)
	require.Len(b.t, r.Levels, len(charges))
	return r
}

func (b *bench) peek(terms lease.Terms) lease.State {
	b.t.Helper()
	st, err := b.Store.Peek(b.t.Context(), bucket, terms)
	require.NoError(b.t, err)
	return st
}

func (b *bench) reset() {
	b.t.Helper()
	require.NoError(b.t, b.Store.Reset(b.t.Context(), bucket))
}

// holds checks what the bucket holds and what of it is out.
func (b *bench) holds(terms lease.Terms, level float64, out int64) {
	b.t.Helper()
	st := b.peek(terms)
	assert.InDelta(b.t, level, st.Level, near, "level")
	assert.Equal(b.t, out, st.Out, "out")
}

// wait checks a wait to the nanosecond, but for a rounding up.
func (b *bench) wait(want, got time.Duration, what string) {
	b.t.Helper()
	assert.True(b.t, got >= want && got <= want+time.Microsecond, "%s is %v, want %v", what, got, want)
}

func tenant(i int) string { return fmt.Sprintf("tenant-%d", i) }
