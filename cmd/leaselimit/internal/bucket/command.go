// Package bucket is the commands that look after one tenant's bucket in Redis.
package bucket

import (
	"context"
	"flag"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/dial"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
)

// InspectCommand shows a bucket.
var InspectCommand = command("inspect", "show a tenant's bucket in Redis", `
Shows the bucket of a tenant as it is in Redis: what it holds now, what of it is leased out to replicas, and what is
stored. It changes nothing. A bucket that Redis has no record of is full, also that of a tenant nobody has heard of.
docs/protocol.md says what an epoch is.`, inspect)

// ResetCommand fills a bucket up.
var ResetCommand = command("reset", "fill a tenant's bucket in Redis up", `
Fills the bucket of a tenant up. What is leased out to replicas stays with them and stays counted, so the bucket then holds
that much less, beyond the overshoot budget. Replicas that know the bucket to be empty believe so for at most 6 s more.`,
	reset)

// timeout bounds a command.
const timeout = 10 * time.Second

// job is one command on one bucket.
type job struct {
	cli.Streams

	tenant string // as it was given
	key    lease.Key
	json   bool

	rdb   redis.UniversalClient
	store *redisbucket.Store
}

func command(name, short, long string, do func(context.Context, *job) error) cli.Command {
	return cli.Command{
		Name: name, Args: "TENANT", Short: short, Long: long,
		Setup: func(flags *flag.FlagSet) func(context.Context, []string, cli.Streams) error {
			addr := flags.String("redis", "localhost:6379", "`address` of Redis:\n"+dial.Usage)
			prefix := flags.String("prefix", "rl", "`text` that the keys in Redis begin with")
			class := flags.String("class", "default", "`name` of the limit's class")
			json := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, args []string, out cli.Streams) error {
				j := &job{Streams: out, json: *json}
				if err := j.name(args, *class); err != nil {
					return err
				}
				server, err := dial.Parse(*addr)
				if err != nil {
					return cli.Usagef("-redis: %v", err)
				}
				j.rdb = server()
				defer func() { _ = j.rdb.Close() }()
				j.store = redisbucket.New(j.rdb, redisbucket.WithPrefix(*prefix))
				ctx, cancel := context.WithTimeout(ctx, timeout)
				defer cancel()
				return do(ctx, j)
			}
		},
	}
}

// name finds out which bucket is meant.
func (j *job) name(args []string, class string) error {
	switch {
	case len(args) == 0:
		return cli.Usagef("TENANT is missing")
	case len(args) > 1:
		return cli.Usagef("one TENANT, please, not %d", len(args))
	case args[0] == "":
		return cli.Usagef("TENANT is empty")
	case class == "":
		return cli.Usagef("-class is empty")
	}
	j.tenant = args[0]
	j.key = lease.Key{Tenant: lease.TenantName(args[0]), Class: class}
	return nil
}
