// Package tune is the command that tries settings of a limiter on a limit and a traffic, and recommends one. Without Redis it
// simulates: the limiters of the library over membucket, on virtual time.
package tune

import (
	"context"
	"flag"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/dial"
)

// Command is the command.
var Command = command(virtual)

// command is tune with a way to have virtual time. Tests have one of their own.
func command(bubble func(func())) cli.Command {
	return cli.Command{
		Name:  "tune",
		Short: "try settings on your limit and traffic, and recommend one",
		Long: `Runs replicas on one tenant's traffic with many settings: overshoot budget, lease share, lease size. It recommends the
one that asks the store least among those that keep to -budget, -burst-loss and -waiting, and shows how that one does with
other numbers of replicas, loads and round trips.

Without -redis it is a simulation: the code of the library, a bucket in memory, and virtual time, in which a round trip
takes -rtt and computing takes nothing. With -redis every run takes -duration, and the round trip is the real one.`,
		Setup: func(flags *flag.FlagSet) func(context.Context, []string, cli.Streams) error {
			s := settings{bubble: bubble}
			s.define(flags)
			return func(ctx context.Context, _ []string, out cli.Streams) error {
				if err := s.complete(flags); err != nil {
					return err
				}
				return run(ctx, &s, out)
			}
		},
	}
}

func (s *settings) define(flags *flag.FlagSet) {
	flags.Int64Var(&s.limit.Capacity, "capacity", 1000, "`number` of tokens that the bucket holds at most")
	flags.Int64Var(&s.limit.Refill, "refill", 1000, "`number` of tokens added each -per")
	flags.DurationVar(&s.limit.Per, "per", time.Second, "the `time` in which -refill is added")
	flags.IntVar(&s.place.Replicas, "replicas", 4, "`number` of replicas, 1 to 256")
	flags.Float64Var(&s.place.Load, "load", 0.9, "calls over all replicas, as a `multiple` of the refill, 0.001 to 100")
	flags.DurationVar(&s.place.RTT, "rtt", time.Millisecond, "`time` of a round trip to the store, 0 to 1s")
	flags.Float64Var(&s.budget, "budget", 0.10, "most overshoot that you accept, as a `fraction` of the capacity, 0 to 1")
	flags.Float64Var(&s.burstLoss, "burst-loss", 0.15,
		"most of a burst on one replica that may be refused while others hold leases,\nas a `fraction` of the capacity, 0 to 1")
	flags.Float64Var(&s.waiting, "waiting", 0.05, "largest `fraction` of the admitted calls that may wait for the store, 0 to 1")
	flags.IntVar(&s.calls, "calls", 5000, "about the `number` of calls that a simulated run makes, 100 to 1000000")
	flags.Uint64Var(&s.seed, "seed", 1, "`number` that the times of the calls follow from")
	flags.StringVar(&s.redis, "redis", "", "measure on the Redis at this `address` instead of simulating:\n"+dial.Usage)
	flags.StringVar(&s.prefix, "prefix", "rl-tune", "`text` that the keys in Redis begin with")
	flags.DurationVar(&s.duration, "duration", 2*time.Second, "the `time` that a run takes with -redis, 100ms to 10m; make it long enough for some thousand calls")
	flags.StringVar(&s.chart, "chart", "tune.svg", "`file` that the chart is written to; empty: none")
	flags.BoolVar(&s.json, "json", false, "print everything that was measured as one JSON object on standard output")
}
