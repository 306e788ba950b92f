package redisbucket

import (
	"context"
	"time"
)

// reloadEvery is the least time between two requests for the slots of a Cluster.
const reloadEvery = 100 * time.Millisecond

// reload lets a Cluster client ask for its slots anew, in the background. Other clients know nothing of slots.
func (s *Store) reload(ctx context.Context) {
	rdb, ok := s.rdb.(interface{ ReloadState(context.Context) })
	if !ok {
		return
	}
	now := time.Since(s.start).Nanoseconds()
	last := s.reloaded.Load()
	if last != 0 && now-last < reloadEvery.Nanoseconds() {
		return
	}
	if s.reloaded.CompareAndSwap(last, now) {
		rdb.ReloadState(context.WithoutCancel(ctx))
	}
}
