package demo

import (
	"flag"
	"fmt"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// settings are the flags of the demo.
type settings struct {
	replicas     int
	redis        string // empty: in memory
	prefix       string
	traffic      string
	limit        quota.Limit
	duration     time.Duration
	exact        bool
	maxOvershoot float64
	leaseShare   float64
	leaseTTL     time.Duration
	storeTimeout time.Duration // 0: by the store
	latency      time.Duration
	seed         uint64
	json         bool
	http         string // empty: nothing is served

	wrap func(lease.Store) lease.Store // nil, but in tests
}

const (
	maxReplicas = 256
	maxCalls    = 5_000_000 // each is kept until the end: 64 bytes
)

// complete checks the flags, and settles what depends on which of them were given.
func (s *settings) complete(flags *flag.FlagSet) error {
	s.limit.Per = time.Second
	check := func(ok bool, name string, value any, bound string) error {
		if ok {
			return nil
		}
		return cli.Usagef("-%s is %v, must be %s", name, value, bound)
	}
	for _, err := range []error{
		check(s.replicas >= 1 && s.replicas <= maxReplicas, "replicas", s.replicas, fmt.Sprintf("1 to %d", maxReplicas)),
		check(traffics[s.traffic] != nil, "traffic", fmt.Sprintf("%q", s.traffic), "one of "+trafficNames()),
		check(s.limit.Capacity >= 1 && s.limit.Capacity <= quota.MaxTokens, "capacity", s.limit.Capacity,
			fmt.Sprintf("1 to %d", quota.MaxTokens)),
		check(s.limit.Refill >= 0 && s.limit.Refill <= quota.MaxTokens, "refill", s.limit.Refill,
			fmt.Sprintf("0 to %d", quota.MaxTokens)),
		check(s.duration > 0, "duration", s.duration, "above 0"),
		check(s.storeTimeout >= 0, "store-timeout", s.storeTimeout, "0, or above 0 and below -lease-ttl"),
		check(s.latency >= 0, "latency", s.latency, "0 or more"),
		// For these the zero of leaselimit.Config is its default, which is not what a person means by 0.
		check(s.leaseShare > 0, "lease-share", s.leaseShare, "above 0 and at most 1"),
		check(s.leaseTTL > 0, "lease-ttl", s.leaseTTL, "10ms to 1h"),
	} {
		if err != nil {
			return err
		}
	}
	if s.storeTimeout == 0 && s.redis == "" {
		s.storeTimeout = min(memoryTimeout, s.leaseTTL/2)
	}
	switch {
	case s.redis != "" && cli.WasSet(flags, "latency"):
		return cli.Usagef("-latency is for the bucket in memory, and -redis was given")
	case s.exact && cli.WasSet(flags, "max-overshoot") && s.maxOvershoot != 0:
		return cli.Usagef("-exact is a budget of 0, and -max-overshoot is %v", s.maxOvershoot)
	case s.exact, s.maxOvershoot == 0:
		s.exact, s.maxOvershoot = true, 0
	}
	if n := s.expected(); n > maxCalls {
		return cli.Usagef("that would be about %.3g calls, at most %d can be kept: lower -refill, -capacity or -duration",
			n, maxCalls)
	}
	return nil
}

// config is what each replica is made of.
func (s *settings) config() leaselimit.Config {
	return leaselimit.Config{
		Limits:       quota.Fixed(s.limit),
		MaxOvershoot: s.maxOvershoot,
		Exact:        s.exact,
		LeaseShare:   s.leaseShare,
		LeaseTTL:     s.leaseTTL,
		StoreTimeout: s.storeTimeout,
		Replicas:     s.replicas,
		// The bound is about what the shared bucket granted. Calls that a policy lets pass while the store is away are
		// beside it and would spoil the check.
		OnFailure: leaselimit.FailClosed,
	}
}

// memoryTimeout: the bucket in memory never fails. It can only be late, on a machine that is busy with something else.
const memoryTimeout = time.Second
