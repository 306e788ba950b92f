// Command tiers is a service whose customers have bought different limits:
//
//	go run ./examples/tiers
//
// keeps everything in this process. With -redis all replicas that name the same Redis share the buckets, and with -postgres
// tiers, tenants and exceptions come from a database, where a change is in force within a second.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
)

// patience is how long a request may wait for Redis, or for the database.
var patience = time.Second

func main() {
	addr := flag.String("addr", "localhost:8080", "where to listen")
	redisURL := flag.String("redis", "", "Redis for the buckets, as redis://localhost:6379; empty: in memory")
	postgresURL := flag.String("postgres", "", "PostgreSQL for the tiers, as postgres://user@localhost/db; empty: in memory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *redisURL, *postgresURL); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, redisURL, postgresURL string) error {
	handler, end, err := service(ctx, redisURL, postgresURL)
	if err != nil {
		return err
	}
	defer end()
	srv := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	unwatch := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
	})
	defer unwatch()
	fmt.Printf("try: for i in $(seq 30); do curl -sH 'Authorization: Bearer key-small' http://%s/; done\n", addr)
	fmt.Println("and key-large, key-bursty")
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// service is the whole of it but for the port. end closes what it has opened.
func service(ctx context.Context, redisURL, postgresURL string) (_ http.Handler, end func(), err error) {
	var ends closers
	defer func() {
		if err != nil {
			ends.close()
		}
	}()
	store, err := buckets(redisURL, &ends)
	if err != nil {
		return nil, nil, err
	}
	limits, err := tiers(ctx, postgresURL, &ends)
	if err != nil {
		return nil, nil, err
	}
	lim, err := leaselimit.New(store, leaselimit.Config{Limits: limits, StoreTimeout: patience})
	if err != nil {
		return nil, nil, err
	}
	ends.add(func() { // leases go back, so that no tokens are missing elsewhere
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = lim.Close(ctx)
	})
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "hello,", tenantOf(r.Context()))
	})
	return authenticate(limit(lim, hello)), ends.close, nil
}

// apiKeys stand for whatever knows your customers.
var apiKeys = map[string]string{"key-small": "small-co", "key-large": "large-co", "key-bursty": "bursty-co", "key-new": "new-co"}

type tenantKey struct{}

func tenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}

// authenticate puts the tenant into the context. It is what the key says, not what the client says: whoever may choose a
// tenant chooses a full bucket.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		tenant, ok := apiKeys[key]
		if !ok {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant)))
	})
}

// limit answers 429 to what is above the tenant's limit.
func limit(lim *leaselimit.Limiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch d, err := lim.Allow(r.Context(), tenantOf(r.Context())); {
		case errors.Is(err, quota.ErrUnknownTenant):
			http.Error(w, "no plan", http.StatusForbidden)
		case err != nil: // the limit is not known: not the client's fault
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case !d.Allowed:
			if d.RetryAfter != leaselimit.Never {
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.RetryAfter.Seconds()))))
			}
			http.Error(w, "limit of "+d.Limit.String()+" exceeded", http.StatusTooManyRequests)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
