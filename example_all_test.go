package leaselimit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
)

// A call that has to pass the tenant's total and its limit of exports spends of both, or of none.
func ExampleAllowAll() {
	ctx := context.Background()
	store := membucket.New() // one store for all classes
	class := func(name string, limit quota.Limit) *leaselimit.Limiter {
		lim, err := leaselimit.New(store, leaselimit.Config{Class: name, Limits: quota.Fixed(limit), StoreTimeout: 10 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		return lim
	}
	total, exports := class("total", quota.PerMinute(60, 100)), class("export", quota.PerMinute(1, 2))
	defer total.Close(ctx)
	defer exports.Close(ctx)

	for range 3 {
		d, err := leaselimit.AllowAll(ctx, "acme",
			leaselimit.Charge{Limiter: total, Cost: 10},
			leaselimit.Charge{Limiter: exports, Cost: 1})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Class, d.RetryAfter.Round(time.Second))
	}
	left, err := total.Peek(ctx, "acme")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("of the total are left", left.Remaining)
	// Output:
	// true export 0s
	// true export 0s
	// false export 1m0s
	// of the total are left 80
}

// The cost of some work is known when it is done. It is charged as estimated first, and settled then.
func ExampleLimiter_Estimate() {
	ctx := context.Background()
	lim := onMembucket(leaselimit.Config{Limits: quota.Fixed(quota.PerMinute(1, 1000))})
	defer lim.Close(ctx)

	e, err := lim.Estimate(ctx, "acme", 200) // tokens of a language model, perhaps
	if err != nil {
		log.Fatal(err)
	}
	if !e.Allowed {
		return
	}
	used := int64(350)
	if err := e.Settle(ctx, used); err != nil {
		log.Fatal(err)
	}
	left, err := lim.Peek(ctx, "acme")
	fmt.Println(left.Remaining, err)
	// Output:
	// 650 <nil>
}
