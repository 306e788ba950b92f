// Command leaselimit shows several replicas holding one limit together, recommends settings, looks after buckets in Redis, and
// serves them to gateways.
//
//	leaselimit demo      runs replicas against one shared bucket and reports what they admitted
//	leaselimit inspect   shows a tenant's bucket in Redis
//	leaselimit reset     fills a tenant's bucket in Redis up
//	leaselimit serve     serves limits to Envoy and Istio gateways
//	leaselimit tune      tries settings on a limit and its traffic, and recommends one
//
// Exit status: 0; 1 if the command failed or the demo broke its bound; 2 for wrong usage.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/bucket"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/demo"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/serve"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tune"
)

var program = cli.Program{
	Name: "leaselimit",
	Commands: []cli.Command{
		demo.Command,
		bucket.InspectCommand,
		bucket.ResetCommand,
		serve.Command,
		tune.Command,
	},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second interrupt ends the process as if nobody listened
	os.Exit(program.Run(ctx, os.Args[1:], cli.Streams{Out: os.Stdout, Err: os.Stderr}))
}
