package leaselimit_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
)

// Whatever a Config says, New refuses it or makes a limiter that decides, and that admits no more than the capacity at once.
func FuzzConfig(f *testing.F) {
	const sec = int64(time.Second)
	f.Add("default", int64(10), int64(1), sec, 0.1, false, 0.25, 30*sec, int64(0), int64(0), 50*sec/1000, uint8(0), 0, 100, false, int64(0))
	f.Add("", int64(0), int64(0), int64(0), 0.0, true, 1.0, 10*sec/1000, int64(5), int64(5), int64(1), uint8(1), 4, 1, true, sec/1000)
	f.Add("a.b-c_d", int64(1), int64(1), int64(1), 1.0, false, 1e-9, 3600*sec, int64(1), int64(1<<62), sec, uint8(2), 1<<40, 1<<40, false, int64(0))
	f.Add("{x}", int64(-1), int64(-1), int64(-1), -0.1, true, 2.0, int64(-1), int64(-1), int64(-1), int64(-1), uint8(3), -1, -1, false, int64(-1))
	f.Fuzz(func(t *testing.T, class string, capacity, refill, per int64, overshoot float64, exact bool, share float64, ttl, size,
		hold, timeout int64, policy uint8, replicas, tenants int, shadow bool, coarse int64,
	) {
		limit := quota.Limit{Capacity: capacity, Refill: refill, Per: time.Duration(per)}
		lim, err := leaselimit.New(membucket.New(), leaselimit.Config{
			Class: class, Limits: quota.Fixed(limit), MaxOvershoot: overshoot, Exact: exact, LeaseShare: share,
			LeaseTTL: time.Duration(ttl), LeaseSize: size, MaxHold: hold, StoreTimeout: time.Duration(timeout),
			OnFailure: leaselimit.FailurePolicy(policy), Replicas: replicas, MaxTenants: tenants, Shadow: shadow,
			CoarseClock: time.Duration(coarse), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			if lim != nil {
				t.Fatal("a limiter and an error")
			}
			return
		}
		defer func() {
			if err := lim.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}()
		if err := limit.Validate(); err != nil {
			t.Fatalf("%v was accepted: %v", limit, err)
		}
		for _, cost := range []int64{1, 1, 2, capacity, 1} {
			d, err := lim.AllowN(t.Context(), "acme", cost)
			switch {
			case err != nil && cost > 0:
				t.Fatal(err)
			case err != nil:
			case d.Allowed && !d.Shadowed && !limit.IsUnlimited() && cost > capacity:
				t.Fatalf("%d of %v: %v", cost, limit, d)
			case d.Remaining < 0 || d.RetryAfter < 0 || (d.Allowed && d.RetryAfter != 0):
				t.Fatalf("%v", d)
			}
		}
		s := lim.Stats()
		if s.TokensHeld > capacity && !limit.IsUnlimited() {
			t.Fatalf("holds %d of %v", s.TokensHeld, limit)
		}
	})
}

// Whatever the limit, its text and its rate make sense, and a bucket of it is never given twice.
func FuzzLimit(f *testing.F) {
	f.Add(int64(10), int64(1), int64(time.Second), int64(3))
	f.Add(int64(0), int64(0), int64(0), int64(1))
	f.Add(int64(1<<53-1), int64(1<<53-1), int64(1), int64(1<<53-1))
	f.Add(int64(1), int64(1), int64(1<<62), int64(1))
	f.Add(int64(-5), int64(3), int64(-1), int64(2))
	f.Fuzz(func(t *testing.T, capacity, refill, per, cost int64) {
		limit := quota.Limit{Capacity: capacity, Refill: refill, Per: time.Duration(per)}
		if limit.Validate() != nil || limit.IsUnlimited() || cost < 1 || cost > capacity {
			return
		}
		if r := limit.PerMillisecond(); !(r >= 0) {
			t.Fatalf("%v has a rate of %v", limit, r)
		}
		limit.Refill, limit.Per = 0, 0 // or time would tell
		lim, err := leaselimit.New(membucket.New(), leaselimit.Config{Limits: quota.Fixed(limit), StoreTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		admitted := int64(0)
		for range 20 {
			d, err := lim.AllowN(t.Context(), "acme", cost)
			if err != nil || d.Degraded() {
				t.Fatal(d, err)
			}
			if d.Allowed {
				admitted += cost
			}
			if admitted > capacity || admitted < 0 {
				t.Fatalf("admitted %d of %d", admitted, capacity)
			}
		}
		if err := lim.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}
