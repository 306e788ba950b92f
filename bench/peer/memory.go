package peer

import (
	"errors"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// Limiters of one process. They ask nobody, and N replicas of them admit N times the limit.
var (
	// XTime is a single limiter, whatever the number of tenants: the least that a decision by token bucket can cost.
	XTime = Peer{Name: "xtime", New: func(w Work) (*Limiter, error) {
		l := newRate(w)
		return inMemory(func(int) (bool, error) { return l.Allow(), nil }), nil
	}}

	// XTimeMap is what services keep for many tenants.
	XTimeMap = Peer{Name: "xtime-syncmap", New: func(w Work) (*Limiter, error) {
		var m sync.Map
		names := w.Names()
		for _, name := range names {
			m.Store(name, newRate(w))
		}
		return inMemory(func(i int) (bool, error) {
			l, ok := m.Load(names[i])
			if !ok {
				return false, errors.New("no such tenant")
			}
			return l.(*rate.Limiter).Allow(), nil
		}), nil
	}}

	// Uber is a leaky bucket that makes callers wait. At a rate of one call per nanosecond nobody waits.
	Uber = Peer{Name: "uber", NeverRefuses: true, New: func(w Work) (*Limiter, error) {
		var m sync.Map
		names := w.Names()
		for _, name := range names {
			m.Store(name, ratelimit.New(int(time.Second)))
		}
		return inMemory(func(i int) (bool, error) {
			l, ok := m.Load(names[i])
			if !ok {
				return false, errors.New("no such tenant")
			}
			l.(ratelimit.Limiter).Take()
			return true, nil
		}), nil
	}}

	// GoLimiter is the store in memory of sethvargo/go-limiter.
	GoLimiter = Peer{Name: "go-limiter", New: func(w Work) (*Limiter, error) {
		tokens := uint64(1)
		if w.Allow {
			tokens = uint64(Plenty)
		}
		store, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: Long})
		if err != nil {
			return nil, err
		}
		names := w.Names()
		return &Limiter{
			Decide: func(i int) (bool, error) {
				_, _, _, ok, err := store.Take(Ctx, names[i])
				return ok, err
			},
			Close: func() error { return store.Close(Ctx) },
		}, nil
	}}
)

func inMemory(decide func(int) (bool, error)) *Limiter {
	return &Limiter{Decide: decide, Close: func() error { return nil }}
}

// newRate refills slowly enough that a single token is spent for good, and plenty are never spent.
func newRate(w Work) *rate.Limiter {
	return rate.NewLimiter(rate.Every(Long), int(w.limit().Capacity))
}
