package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// limiters are those of the classes, by name.
type limiters map[string]*leaselimit.Limiter

func newLimiters(c config, store lease.Store, log *slog.Logger) (limiters, error) {
	lims := limiters{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Classes)) {
		lim, err := c.Classes[name].limiter(name, store, log)
		if err != nil {
			errs = append(errs, fmt.Errorf("classes.%s: %w", name, err))
			continue
		}
		lims[name] = lim
	}
	return lims, errors.Join(errs...) // a limiter that was never asked has nothing to close
}

func (c class) limiter(name string, store lease.Store, log *slog.Logger) (*leaselimit.Limiter, error) {
	policy, err := c.policy()
	if err != nil {
		return nil, err
	}
	limits, err := c.source()
	if err != nil {
		return nil, err
	}
	cfg := leaselimit.Config{
		Class: name, Limits: limits, Exact: c.Exact, LeaseShare: c.LeaseShare, LeaseTTL: time.Duration(c.LeaseTTL),
		StoreTimeout: time.Duration(c.StoreTimeout), OnFailure: policy, Replicas: c.Replicas, MaxTenants: c.MaxTenants,
		Shadow: c.Shadow, Logger: log,
	}
	if c.MaxOvershoot != nil {
		cfg.MaxOvershoot = *c.MaxOvershoot
	}
	return leaselimit.New(store, cfg)
}

// source is the limits of all tenants. They are in memory, so it never fails.
func (c class) source() (quota.Source, error) {
	others, err := c.quota()
	if err != nil {
		return nil, err
	}
	if len(c.Tenants) == 0 {
		return quota.Fixed(others), nil
	}
	byTenant := make(map[string]quota.Limit, len(c.Tenants))
	for tenant, l := range c.Tenants {
		if byTenant[tenant], err = l.quota(); err != nil {
			return nil, err
		}
	}
	return quota.SourceFunc(func(_ context.Context, tenant string) (quota.Limit, error) {
		if l, ok := byTenant[tenant]; ok {
			return l, nil
		}
		return others, nil
	}), nil
}

// all are the limiters in the order of their classes.
func (l limiters) all() []*leaselimit.Limiter {
	var all []*leaselimit.Limiter
	for _, name := range slices.Sorted(maps.Keys(l)) {
		all = append(all, l[name])
	}
	return all
}

// close returns what they have leased.
func (l limiters) close(ctx context.Context) error {
	var errs []error
	for _, lim := range l {
		errs = append(errs, lim.Close(ctx))
	}
	return errors.Join(errs...)
}
