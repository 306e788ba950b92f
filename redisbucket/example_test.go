package redisbucket_test

import (
	"crypto/tls"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
)

// TLS, the user and the timeouts are the client's. The rights that the user needs are in docs/operations.md.
func ExampleNew_tls() {
	rdb := redis.NewClient(&redis.Options{
		Addr:                  "redis.example.com:6380",
		Username:              "limiter",
		CredentialsProvider:   func() (username, password string) { return "limiter", secret("redis-password") },
		TLSConfig:             &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "redis.example.com"},
		ContextTimeoutEnabled: true, // a draw that is given up does not hold its connection
		DialerRetries:         1,    // what is wrong with a connection is told at once
	})
	defer func() { _ = rdb.Close() }() // after the limiter is closed

	lim, err := leaselimit.New(redisbucket.New(rdb), leaselimit.Config{
		Limits: quota.Fixed(quota.PerSecond(100, 200)),
	})
	if err != nil {
		panic(err)
	}
	_ = lim
}

// secret stands for wherever secrets come from.
func secret(string) string { return "" }
