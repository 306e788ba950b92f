// Package demo is the command that shows several replicas holding one tenant to one limit: independent limiters in one
// process, on a shared bucket in memory or in Redis, under calls whose times are fixed in advance.
package demo

import (
	"context"
	"flag"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/dial"
	"github.com/leaselimit/leaselimit/lease"
)

// Command is the command.
var Command = command(nil)

// command is the demo whose replicas see the shared bucket through wrap. Tests put a fault between the two.
func command(wrap func(lease.Store) lease.Store) cli.Command {
	return cli.Command{
		Name:  "demo",
		Short: "run replicas against one shared bucket, and report what they admitted",
		Long: `Runs several replicas, each a limiter of its own, that hold one tenant to one limit together. At the end it reports
what they admitted, next to what separate in-process limiters and one ideal central bucket would have admitted of the
same calls; the times given for a store on every call are those of this run's own draws. It exits with 1 if more was
admitted than the bound allows. An interrupt ends the run early, with the report.

What is shown during the run goes by the times of the answers, so its overshoot and undershoot may be off by what is
refilled in a round trip; the report goes by the times of the calls. "Held" is what replicas have in leases. A run on
Redis uses a tenant of its own.`,
		Setup: func(flags *flag.FlagSet) func(context.Context, []string, cli.Streams) error {
			s := settings{wrap: wrap}
			s.define(flags)
			return func(ctx context.Context, _ []string, out cli.Streams) error {
				if err := s.complete(flags); err != nil {
					return err
				}
				return run(ctx, s, out)
			}
		},
	}
}

func (s *settings) define(flags *flag.FlagSet) {
	flags.IntVar(&s.replicas, "replicas", 4, "`number` of replicas, 1 to 256")
	flags.StringVar(&s.redis, "redis", "", "keep the shared bucket in the Redis at this `address` instead of in memory:\n"+dial.Usage)
	flags.StringVar(&s.prefix, "prefix", "rl", "`text` that the keys in Redis begin with")
	flags.StringVar(&s.traffic, "traffic", "overload", "`kind` of traffic:\n"+trafficUsage())
	flags.Int64Var(&s.limit.Capacity, "capacity", 1000, "`number` of tokens that the bucket holds at most")
	flags.Int64Var(&s.limit.Refill, "refill", 1000, "`number` of tokens added each second")
	flags.DurationVar(&s.duration, "duration", 6*time.Second, "the `time` in which calls are made")
	flags.BoolVar(&s.exact, "exact", false, "no overshoot at all, a budget of 0")
	flags.Float64Var(&s.maxOvershoot, "max-overshoot", 0.10, "overshoot budget, as a `fraction` of the capacity, 0 to 1")
	flags.Float64Var(&s.leaseShare, "lease-share", 0.25, "most that may be leased out at once, as a `fraction` of the capacity")
	flags.DurationVar(&s.leaseTTL, "lease-ttl", 30*time.Second, "the `time` in which a lease may be spent")
	flags.DurationVar(&s.storeTimeout, "store-timeout", 0,
		"the `time` that a call waits for the bucket before it is refused (default 50ms, and 1s in memory)")
	flags.DurationVar(&s.latency, "latency", 500*time.Microsecond, "`time` of a round trip to the bucket in memory, which feels like a network then")
	flags.Uint64Var(&s.seed, "seed", 1, "`number` that the times of the calls follow from")
	flags.StringVar(&s.http, "http", "", "serve a chart, the debug page and metrics on this `address` during the run, such as :8080")
	flags.BoolVar(&s.json, "json", false, "print the report as one JSON object, and nothing else, on standard output")
}
