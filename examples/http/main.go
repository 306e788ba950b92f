// Command http is an HTTP service with a limit for each tenant, and a polite client that calls it.
//
//	go run ./examples/http                          buckets in memory
//	go run ./examples/http -redis localhost:6379    buckets in Redis; start several of them, on other -addr
//
// Stop it with Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		slog.Error("stopped", slog.Any("error", err))
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080", "where to listen")
	redisAddr := flags.String("redis", "", "address of a Redis for the buckets; empty keeps them in memory")
	if err := flags.Parse(args); err != nil {
		return err
	}

	var store lease.Store = membucket.New()
	if *redisAddr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: *redisAddr, ContextTimeoutEnabled: true})
		defer func() { err = errors.Join(err, rdb.Close()) }()
		store = redisbucket.New(rdb)
	}
	// One limiter for each limit and process. Every tenant may call 3 times at once, and every 2 seconds from then on.
	lim, err := leaselimit.New(store, leaselimit.Config{
		Limits:       quota.Fixed(quota.PerMinute(30, 3)),
		StoreTimeout: time.Second,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lim.Close(context.WithoutCancel(ctx))) }()

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: handler(lim), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(listener) }()

	url := "http://" + listener.Addr().String()
	_, _ = fmt.Fprintf(out, "Try:\n  curl -i -H 'Authorization: Bearer acme-secret' %s/\n  curl -i %s/          (401)\n"+
		"  curl -i %s/healthz   (never limited)\n\nA polite client calls 5 times:\n", url, url, url)
	if err := call(ctx, url, out); err != nil && ctx.Err() == nil {
		return errors.Join(err, srv.Close())
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return srv.Shutdown(grace)
}

// handler is the service: authentication, then the limit, then what it is there for.
func handler(lim *leaselimit.Limiter) http.Handler {
	limit := httplimit.Middleware(lim, tenant, httplimit.WithExempt(isHealthCheck))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		name, _ := tenant(r)
		_, _ = fmt.Fprintf(w, "hello, %s\n", name)
	})
	return authenticate(limit(mux))
}

func isHealthCheck(r *http.Request) bool { return r.URL.Path == "/healthz" }

// identity is the key of the tenant in a request's context. Nobody but authenticate can set it.
type identity struct{}

// authenticate stands for what your service has: it finds out who calls, and does not believe a header that only says so.
func authenticate(next http.Handler) http.Handler {
	tenants := map[string]string{"Bearer acme-secret": "acme", "Bearer globex-secret": "globex"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, ok := tenants[r.Header.Get("Authorization")]; ok {
			r = r.WithContext(context.WithValue(r.Context(), identity{}, name))
		} else {
			w.Header().Set("WWW-Authenticate", "Bearer") // for the 401 of the limiter
		}
		next.ServeHTTP(w, r)
	})
}

func tenant(r *http.Request) (string, error) {
	name, _ := r.Context().Value(identity{}).(string)
	return name, nil // no name is no tenant: 401
}

// call calls the service five times, with a client that waits when it is told to.
func call(ctx context.Context, url string, out io.Writer) error {
	client := &http.Client{Transport: httplimit.NewTransport(nil), Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for range 5 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer globex-secret")
		start := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "  %s after %.1f s, RateLimit: %s\n",
			resp.Status, time.Since(start).Seconds(), resp.Header.Get("RateLimit"))
	}
	return nil
}
