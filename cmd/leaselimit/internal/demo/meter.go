package demo

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit/lease"
)

// meter is a store that notes how long its draws take: what every call would have waited if it had asked the store.
type meter struct {
	lease.Store

	mu    sync.Mutex
	trips []int64 // nanoseconds
}

func (m *meter) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	start := time.Now()
	grant, err := m.Store.Acquire(ctx, req)
	if err == nil {
		took := time.Since(start).Nanoseconds()
		m.mu.Lock()
		m.trips = append(m.trips, took)
		m.mu.Unlock()
	}
	return grant, err
}

// draws are the times of the draws so far.
func (m *meter) draws() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.trips)
}
