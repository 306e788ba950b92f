// Package serve is the command that runs Envoy's rate limit service over the buckets that services limit themselves with.
package serve

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/dial"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/redisbucket"
)

// Command serves.
var Command = cli.Command{
	Name: "serve", Short: "serve limits to Envoy and Istio gateways", Long: `
Runs Envoy's rate limit service (envoy.service.ratelimit.v3) over the buckets that services limit themselves with, so that a
gateway and the services behind it hold a tenant to one limit. What is limited is in a config file, docs/serve.md. It also
serves gRPC health, and by HTTP /metrics and /healthz. On SIGTERM it answers what is under way and returns its leases.`,
	Setup: setup,
}

// settings are the flags.
type settings struct {
	configFile string
	listen     string
	httpListen string
	redis      string
	prefix     string
	tlsCert    string
	tlsKey     string
	drain      time.Duration
	check      bool
}

func setup(flags *flag.FlagSet) func(context.Context, []string, cli.Streams) error {
	var s settings
	flags.StringVar(&s.configFile, "config", "", "`file` that says what is limited, YAML or JSON")
	flags.StringVar(&s.listen, "listen", ":8081", "`address` of the rate limit service and gRPC health")
	flags.StringVar(&s.httpListen, "http", ":8080", "`address` of /metrics and /healthz")
	flags.StringVar(&s.redis, "redis", "", "`address` of Redis, in memory if empty:\n"+dial.Usage)
	flags.StringVar(&s.prefix, "prefix", "rl", "`text` that the keys in Redis begin with")
	flags.StringVar(&s.tlsCert, "tls-cert", "", "`file` of a certificate, PEM: -listen then speaks TLS alone")
	flags.StringVar(&s.tlsKey, "tls-key", "", "`file` of the key of -tls-cert, PEM")
	flags.DurationVar(&s.drain, "drain", 10*time.Second, "how long calls under way may take once the end was asked for")
	flags.BoolVar(&s.check, "check", false, "read the config file and end")
	return func(ctx context.Context, _ []string, out cli.Streams) error { return serve(ctx, s, out) }
}

func serve(ctx context.Context, s settings, out cli.Streams) error {
	switch {
	case s.configFile == "":
		return cli.Usagef("-config is missing")
	case (s.tlsCert == "") != (s.tlsKey == ""):
		return cli.Usagef("-tls-cert and -tls-key go together")
	case s.drain < 0:
		return cli.Usagef("-drain is %v, must be 0 or more", s.drain)
	}
	text, err := os.ReadFile(s.configFile)
	if err != nil {
		return fmt.Errorf("-config: %w", err)
	}
	c, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", s.configFile, err)
	}
	log := slog.New(slog.NewTextHandler(out.Err, nil))

	var store lease.Store = membucket.New()
	if s.redis != "" {
		client, err := dial.Parse(s.redis)
		if err != nil {
			return cli.Usagef("-redis: %v", err)
		}
		rdb := client()
		defer func() { _ = rdb.Close() }()
		store = redisbucket.New(rdb, redisbucket.WithPrefix(s.prefix))
	}
	lims, err := newLimiters(c, store, log)
	if err != nil {
		return fmt.Errorf("%s: %w", s.configFile, err)
	}
	srv, err := newServer(s, c, lims, log)
	if err != nil {
		return err
	}
	if s.check {
		_, err := fmt.Fprintf(out.Out, "%s: ok, classes: %d, rules: %d\n", s.configFile, len(c.Classes), len(c.Rules))
		return err
	}
	if s.redis == "" {
		log.Warn("serve: buckets are in memory, so they are this process's alone: set -redis to share them")
	}
	return srv.run(ctx, out)
}
