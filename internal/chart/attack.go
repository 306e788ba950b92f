package chart

import (
	"context"
	"fmt"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// Attack is the load that is after the whole budget, by real limiters: lease as much as may be out, spread over the
// replicas, let the bucket fill up beside it, then spend leases and bucket at one moment. It does so a few times. The store
// must answer at once, so that no call is in flight. It gives the overshoot and its bound, in tokens.
func Attack(store lease.Store, limit quota.Limit, cfg leaselimit.Config, replicas int) (overshoot float64, budget int64, err error) {
	cfg.Limits, cfg.Replicas = quota.Fixed(limit), 1
	cfg.LeaseSize = max(1, int64(cfg.LeaseShare*float64(limit.Capacity))/int64(replicas))
	cfg.MaxHold = limit.Capacity
	lims := make([]*leaselimit.Limiter, replicas)
	for i := range lims {
		if lims[i], err = leaselimit.New(store, cfg); err != nil {
			return 0, 0, err
		}
	}
	start, meter := time.Now(), fleet.NewMeter(limit)
	allow := func(l *leaselimit.Limiter) (bool, error) {
		d, err := l.Allow(context.Background(), "tenant")
		switch {
		case err != nil:
			return false, err
		case d.Degraded():
			return false, fmt.Errorf("degraded: %v", d)
		case d.Allowed:
			meter.Admit(time.Since(start), 1)
		}
		return d.Allowed, nil
	}
	full := time.Duration(float64(limit.Capacity) / limit.PerMillisecond() * 1e6)
	for range 3 {
		for _, l := range lims {
			if _, err := allow(l); err != nil {
				return 0, 0, err
			}
		}
		time.Sleep(full + time.Millisecond)
		for _, l := range lims {
			for {
				ok, err := allow(l)
				if err != nil {
					return 0, 0, err
				}
				if !ok {
					break
				}
			}
		}
		time.Sleep(2*full + 10*time.Millisecond)
	}
	budget = lims[0].Bound("tenant").Tokens
	for _, l := range lims {
		if err := l.Close(context.Background()); err != nil {
			return 0, 0, err
		}
	}
	return meter.Overshoot(), budget, nil
}
