// Package peer holds the limiters that are compared, each reduced to one call: may tenant i pass? The indirect call costs each
// of them the same, about 2 ns.
//
// What it does not do: make unlike things alike. A limiter in memory limits one process, however quick it is; some of them
// wait, some count in fixed windows. README.md says what each does for a call.
package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Peer is a kind of limiter.
type Peer struct {
	Name string // as in the names of benchmarks: no '/' and no spaces
	New  func(w Work) (*Limiter, error)

	NeverRefuses bool // it makes callers wait instead
	// Contends says that concurrent calls for one tenant may fail: what it does about contention is to give up.
	Contends bool
}

// Work is what a limiter is made for.
type Work struct {
	Tenants int
	Allow   bool   // a limit that allows every call, or else one of a single token a day
	Addr    string // host:port of Redis, for those that use it
	Prefix  string // of the tenants' names, which no one else uses
}

// A Limiter is one that is ready to decide. It is safe for concurrent use.
type Limiter struct {
	Decide func(i int) (allowed bool, err error) // on one call of tenant i, of cost 1
	Close  func() error
}

// Plenty is more tokens than a benchmark can spend, and still an exact count everywhere.
const Plenty = int64(1) << 40

// Long is how long a refused tenant waits for its next token: longer than any benchmark.
const Long = 24 * time.Hour

// Ctx is what callers pass: no deadline, never done.
var Ctx = context.Background()

// ErrWrong is the error of a limiter that allowed what it must refuse, or the reverse. A wrong answer is quick.
var ErrWrong = errors.New("wrong decision")

// Names are the names of all tenants.
func (w Work) Names() []string {
	all := make([]string, w.Tenants)
	for i := range all {
		all[i] = fmt.Sprintf("%stenant-%d", w.Prefix, i)
	}
	return all
}

// Stride is the distance, modulo Tenants, from one tenant to the one that is called next. All have their turn, but not in the
// order in which they were made: neighbours in memory would be called after each other, which real traffic does not do, and
// which suits those peers that make theirs in order.
func (w Work) Stride() int { return 7919 % w.Tenants } // a prime, so that it passes over none

// Prepare makes a limiter for w and brings every tenant into the state that is measured: its first call is over, and if w
// refuses, so is its only token.
func (p Peer) Prepare(w Work) (*Limiter, error) {
	lim, err := p.New(w)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	if err := each(w.Tenants, func(i int) error { return warm(lim, w, i) }); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", p.Name, err), lim.Close())
	}
	return lim, nil
}

// warm makes the first call of tenant i, and further ones until it is refused if it has to be.
func warm(lim *Limiter, w Work, i int) error {
	const most = 100
	for range most {
		allowed, err := lim.Decide(i)
		if err != nil {
			return err
		}
		if allowed == w.Allow {
			return nil
		}
	}
	return fmt.Errorf("tenant %d: %w, %d times", i, ErrWrong, most)
}

// each calls f for every i below n, many at a time.
func each(n int, f func(i int) error) error {
	const callers = 32
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n && errs[c] == nil; i += callers {
				errs[c] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
