package leaselimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
)

// The program of the README.
func Example() {
	ctx := context.Background()

	// In a service, a bucket that all replicas share: redisbucket.New(redis.NewClient(&redis.Options{Addr: addr})).
	store := membucket.New()

	lim, err := leaselimit.New(store, leaselimit.Config{
		Limits:       quota.Fixed(quota.PerMinute(3, 3)), // bursts of 3, and one call every 20 seconds
		StoreTimeout: time.Second,                        // how long a call may wait for the store: 50 ms if not set
	})
	if err != nil {
		log.Fatal(err)
	}
	defer lim.Close(ctx)

	for range 4 {
		d, err := lim.Allow(ctx, "acme")
		if err != nil {
			log.Fatal(err) // nothing was decided: the context is done, or an argument is invalid
		}
		if d.Allowed {
			fmt.Println("allowed")
		} else {
			fmt.Println("refused, try again in", d.RetryAfter.Round(time.Second))
		}
	}
	// Output:
	// allowed
	// allowed
	// allowed
	// refused, try again in 20s
}

// Two replicas of a service share a limit by sharing a store. Here both are in one process.
func ExampleNew() {
	ctx := context.Background()
	store := membucket.New()
	cfg := leaselimit.Config{
		Class:        "export",
		Limits:       quota.Fixed(quota.Limit{Capacity: 100}), // 100 calls, and no refill
		StoreTimeout: time.Second,
	}

	admitted := 0
	var replicas []*leaselimit.Limiter
	for range 2 {
		lim, err := leaselimit.New(store, cfg)
		if err != nil {
			log.Fatal(err)
		}
		defer lim.Close(ctx)
		replicas = append(replicas, lim)
	}
	for range 100 {
		for _, lim := range replicas {
			if d, err := lim.Allow(ctx, "acme"); err == nil && d.Allowed {
				admitted++
			}
		}
	}
	fmt.Println(admitted, "of 200 calls admitted")

	_, err := leaselimit.New(store, leaselimit.Config{Limits: cfg.Limits, LeaseShare: 2})
	fmt.Println(err)
	// Output:
	// 100 of 200 calls admitted
	// leaselimit: Config.LeaseShare is 2, must be above 0 and at most 1
}

func ExampleLimiter_Allow() {
	ctx := context.Background()
	lim := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.PerSecond(10, 1))})
	defer lim.Close(ctx)

	for range 2 {
		d, err := lim.Allow(ctx, "acme")
		fmt.Println(d.Allowed, d.RetryAfter > 0, err)
	}
	_, err := lim.Allow(ctx, "")
	fmt.Println(errors.Is(err, leaselimit.ErrInvalidTenant))
	// Output:
	// true false <nil>
	// false true <nil>
	// true
}

// A call may cost more than one token: what a query reads, what an upload weighs. It gets all of them or none.
func ExampleLimiter_AllowN() {
	ctx := context.Background()
	lim := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.PerMinute(10, 10))})
	defer lim.Close(ctx)

	for _, cost := range []int64{7, 7, 3, 11} {
		d, err := lim.AllowN(ctx, "acme", cost)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cost, d.Allowed, d.RetryAfter == leaselimit.Never)
	}
	// Output:
	// 7 true false
	// 7 false false
	// 3 true false
	// 11 false true
}

// A job that can wait does not have to be refused.
func ExampleLimiter_Wait() {
	lim := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.PerSecond(50, 1))})
	defer lim.Close(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	start := time.Now()
	for range 3 {
		if err := lim.Wait(ctx, "acme", 1); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("at least 39ms:", time.Since(start) >= 39*time.Millisecond)

	// What cannot pass in time is not waited for.
	slow := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.PerMinute(1, 1))})
	defer slow.Close(context.Background())
	for range 2 {
		err := slow.Wait(ctx, "acme", 1)
		fmt.Println(err == nil, errors.Is(err, context.DeadlineExceeded))
	}
	// Output:
	// at least 39ms: true
	// true false
	// false true
}

// A handle saves looking the tenant up for every call, for instance in a long stream.
func ExampleLimiter_Tenant() {
	ctx := context.Background()
	lim := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.PerMinute(2, 2))})
	defer lim.Close(ctx)

	acme := lim.Tenant("acme")
	for range 3 {
		d, err := acme.Allow(ctx)
		fmt.Println(d.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

// Peek shows a tenant what it has left, and spends nothing.
func ExampleLimiter_Peek() {
	ctx := context.Background()
	lim := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.PerMinute(6, 6))})
	defer lim.Close(ctx)

	if _, err := lim.AllowN(ctx, "acme", 4); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		d, err := lim.Peek(ctx, "acme")
		fmt.Println(d.Allowed, d.Remaining, d.Limit, err)
	}
	// Output:
	// true 2 6 at 6/1m0s <nil>
	// true 2 6 at 6/1m0s <nil>
}

// Reset is for operators: it gives a tenant its full bucket back.
func ExampleLimiter_Reset() {
	ctx := context.Background()
	lim := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.PerMinute(1, 5))})
	defer lim.Close(ctx)

	allow := func() bool {
		d, err := lim.AllowN(ctx, "acme", 5)
		return err == nil && d.Allowed
	}
	fmt.Println(allow(), allow())
	if err := lim.Reset(ctx, "acme"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(allow())
	// Output:
	// true false
	// true
}

// Bound says what the limiter guarantees for a tenant, over all replicas.
func ExampleLimiter_Bound() {
	limits := quota.Fixed(quota.PerSecond(100, 1000))
	lim := onMembucket(leaselimit.Config{Limits: limits})
	defer lim.Close(context.Background())
	exact := onMembucket(leaselimit.Config{Limits: limits, Exact: true})
	defer exact.Close(context.Background())

	b := lim.Bound("acme")
	fmt.Println("in any 10 seconds at most", b.Limit.Capacity+10*b.Limit.Refill+b.Tokens)
	b = exact.Bound("acme")
	fmt.Println("in exact mode at most", b.Limit.Capacity+10*b.Limit.Refill+b.Tokens)
	// Output:
	// in any 10 seconds at most 2100
	// in exact mode at most 2000
}

func ExampleLimiter_Stats() {
	ctx := context.Background()
	lim := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.Limit{Capacity: 1000})})
	defer lim.Close(ctx)

	for range 1500 {
		if _, err := lim.Allow(ctx, "acme"); err != nil {
			log.Fatal(err)
		}
	}
	s := lim.Stats()
	fmt.Println("allowed", s.Allowed(), "refused", s.Refused(), "tenants", s.Tenants)
	fmt.Println("mostly without asking:", s.StoreCalls() < 150)
	// Output:
	// allowed 1000 refused 500 tenants 1
	// mostly without asking: true
}

// Close gives back what the replica holds, so that a deployment costs tenants nothing.
func ExampleLimiter_Close() {
	ctx := context.Background()
	store := membucket.New()
	cfg := leaselimit.Config{
		Limits:       quota.Fixed(quota.Limit{Capacity: 100}),
		LeaseSize:    10,
		StoreTimeout: time.Second,
	}
	old, err := leaselimit.New(store, cfg)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := old.Allow(ctx, "acme"); err != nil {
		log.Fatal(err)
	}
	if err := old.Close(ctx); err != nil { // the rest of the lease goes back
		log.Fatal(err)
	}
	_, err = old.Allow(ctx, "acme")
	fmt.Println(errors.Is(err, leaselimit.ErrClosed))

	next, err := leaselimit.New(store, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer next.Close(ctx)
	d, err := next.Peek(ctx, "acme")
	fmt.Println(d.Remaining, err)
	// Output:
	// true
	// 99 <nil>
}

// In shadow mode a limit refuses nobody, and shows whom it would refuse: before a new limit is put into force.
func ExampleConfig_shadow() {
	ctx := context.Background()
	lim := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.PerMinute(2, 2)), Shadow: true})
	defer lim.Close(ctx)

	for range 3 {
		d, err := lim.Allow(ctx, "acme")
		fmt.Println(d.Allowed, d.Shadowed, err)
	}
	fmt.Println("would have refused", lim.Stats().Shadowed)
	// Output:
	// true false <nil>
	// true false <nil>
	// true true <nil>
	// would have refused 1
}

// Limits per tenant come from a function, here a table.
func ExampleConfig_limits() {
	ctx := context.Background()
	plans := map[string]quota.Limit{
		"acme":    quota.PerSecond(1000, 2000),
		"partner": quota.Unlimited,
		"mallory": {}, // blocked
	}
	lim := onMembucket(leaselimit.Config{
		Limits: quota.SourceFunc(func(_ context.Context, tenant string) (quota.Limit, error) {
			if limit, ok := plans[tenant]; ok {
				return limit, nil
			}
			return quota.PerSecond(10, 20), nil
		}),
	})
	defer lim.Close(ctx)

	for _, tenant := range []string{"acme", "partner", "mallory", "newcomer"} {
		d, err := lim.Allow(ctx, tenant)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tenant, d.Allowed, d.Limit)
	}
	// Output:
	// acme true 2000 at 1000/1s
	// partner true unlimited
	// mallory false blocked
	// newcomer true 20 at 10/1s
}

// onMembucket returns a limiter on a store of its own. No failure policy gets to decide here, however busy the machine is.
func onMembucket(cfg leaselimit.Config) *leaselimit.Limiter {
	cfg.StoreTimeout = 10 * time.Second
	lim, err := leaselimit.New(membucket.New(), cfg)
	if err != nil {
		log.Fatal(err)
	}
	return lim
}

// What is told off the hot path: calls to the store, refusals by it, evictions, changes of state, and some decisions.
func ExampleObserver() {
	store := membucket.New()
	replica := func(o *leaselimit.Observer) *leaselimit.Limiter {
		lim, err := leaselimit.New(store, leaselimit.Config{
			Limits: quota.Fixed(quota.Limit{Capacity: 2}), StoreTimeout: time.Second, Observer: o,
		})
		if err != nil {
			panic(err)
		}
		return lim
	}
	a := replica(nil)
	b := replica(&leaselimit.Observer{
		Refused: func(tenant string, _ int64, d leaselimit.Decision) { fmt.Println(tenant, d) },
	})
	defer a.Close(context.Background())
	defer b.Close(context.Background())

	_, _ = a.AllowN(context.Background(), "acme", 2)
	_, _ = b.AllowN(context.Background(), "acme", 1)
	// Output: acme refused by store, 0 of 2, no refill left, never again
}
