package tune

import (
	"flag"
	"fmt"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/quota"
)

// settings are the flags of tune.
type settings struct {
	limit                      quota.Limit
	place                      place
	budget, burstLoss, waiting float64
	calls                      int
	seed                       uint64
	redis, prefix              string // redis empty: simulated
	duration                   time.Duration
	chart                      string
	json                       bool

	bubble func(func()) // runs a function on virtual time
}

// A place is where a limiter runs: what is not the limiter's to choose.
type place struct {
	Replicas int           `json:"replicas"`
	Load     float64       `json:"load"`
	RTT      time.Duration `json:"rtt_ns"` // 0 with -redis, whose round trip is its own
}

const (
	maxReplicas = 256
	maxCalls    = 1_000_000       // of a run
	leastRun    = 5 * time.Second // of virtual time: leases are about seconds
)

// complete checks the flags.
func (s *settings) complete(flags *flag.FlagSet) error {
	check := func(ok bool, name string, value any, bound string) error {
		if ok {
			return nil
		}
		return cli.Usagef("-%s is %v, must be %s", name, value, bound)
	}
	fraction := func(name string, v float64) error { return check(v >= 0 && v <= 1, name, v, "0 to 1") }
	tokens := fmt.Sprintf("1 to %d", quota.MaxTokens)
	for _, err := range []error{
		check(s.limit.Capacity >= 1 && s.limit.Capacity <= quota.MaxTokens, "capacity", s.limit.Capacity, tokens),
		check(s.limit.Refill >= 1 && s.limit.Refill <= quota.MaxTokens, "refill", s.limit.Refill, tokens),
		check(s.limit.Per > 0, "per", s.limit.Per, "above 0"),
		check(s.place.Replicas >= 1 && s.place.Replicas <= maxReplicas, "replicas", s.place.Replicas, fmt.Sprintf("1 to %d", maxReplicas)),
		check(s.place.Load >= 0.001 && s.place.Load <= 100, "load", s.place.Load, "0.001 to 100"),
		check(s.place.RTT >= 0 && s.place.RTT <= time.Second, "rtt", s.place.RTT, "0 to 1s"),
		fraction("budget", s.budget),
		fraction("burst-loss", s.burstLoss),
		fraction("waiting", s.waiting),
		check(s.calls >= 100 && s.calls <= maxCalls, "calls", s.calls, fmt.Sprintf("100 to %d", maxCalls)),
		check(s.duration >= 100*time.Millisecond && s.duration <= 10*time.Minute, "duration", s.duration, "100ms to 10m"),
		check(s.budget+s.burstLoss > 0, "burst-loss", s.burstLoss, "above 0 where -budget is 0, or nothing can be leased"),
	} {
		if err != nil {
			return err
		}
	}
	if s.redis != "" {
		for _, name := range []string{"rtt", "calls"} {
			if cli.WasSet(flags, name) {
				return cli.Usagef("-%s is for simulations, and -redis was given", name)
			}
		}
		s.place.RTT = 0
	} else if cli.WasSet(flags, "duration") {
		return cli.Usagef("-duration is for runs with -redis, which was not given")
	}
	if n := s.rate(s.place) * s.length(s.place).Seconds(); n > maxCalls {
		return cli.Usagef("a run would be about %.3g calls, at most %d can be kept: lower -refill or -load", n, maxCalls)
	}
	return nil
}

// rate is the calls a second at p.
func (s *settings) rate(p place) float64 { return s.limit.PerMillisecond() * 1000 * p.Load }

// length is how long a run at p takes.
func (s *settings) length(p place) time.Duration {
	if s.redis != "" {
		return s.duration
	}
	const year = 365 * 24 * 3600
	return max(leastRun, time.Duration(min(year, float64(s.calls)/s.rate(p))*float64(time.Second)))
}
