package redisbucket_test

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLimitsOverTLS(t *testing.T) {
	const capacity, calls = 10, 25
	srv := redistest.Start(t, redistest.WithTLS())
	var allowed int
	for range 2 { // replicas, one after the other
		lim, err := leaselimit.New(redisbucket.New(srv.Client(t, srv.OverTLS)), leaselimit.Config{
			Limits: quota.Fixed(quota.Limit{Capacity: capacity}), StoreTimeout: 10 * time.Second,
		})
		require.NoError(t, err)
		for range calls {
			d, err := lim.Allow(t.Context(), "acme")
			require.NoError(t, err)
			require.False(t, d.Degraded())
			if d.Allowed {
				allowed++
			}
		}
		require.NoError(t, lim.Close(t.Context()))
	}
	assert.Equal(t, capacity, allowed)
}

// A server that cannot be trusted is one that is away, and the log says why. It is sent nothing.
func TestAServerThatIsNotTrusted(t *testing.T) {
	srv := redistest.Start(t, redistest.WithTLS())
	for name, tt := range map[string]struct {
		client func(o *redis.Options)
		want   string
	}{
		"unknown authority": {
			func(o *redis.Options) { o.TLSConfig.RootCAs = x509.NewCertPool() }, "x509: certificate signed by unknown authority",
		},
		"another name": {
			func(o *redis.Options) { o.TLSConfig.ServerName = "redis.example.com" }, "x509: certificate is not valid for any names",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := srv.Client(t, srv.OverTLS, tt.client, func(o *redis.Options) { o.DialerRetries = 1 })
			var log bytes.Buffer // to be read after Close, which ends who writes
			lim, err := leaselimit.New(redisbucket.New(rdb), leaselimit.Config{
				Limits: quota.Fixed(quota.Limit{Capacity: 1}), StoreTimeout: 10 * time.Second, OnFailure: leaselimit.FailClosed,
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				d, err := lim.Allow(t.Context(), "acme")
				assert.NoError(t, err)
				assert.True(t, d.Degraded())
				assert.False(t, d.Allowed)
				return lim.Stats().BreakerOpen
			}, wait, 10*time.Millisecond)
			require.NoError(t, lim.Close(t.Context()))

			failures := lim.Stats().Failures
			assert.Positive(t, failures[lease.ReasonRefused])
			for reason, n := range failures {
				assert.True(t, reason == lease.ReasonRefused || n == 0, "%d failures are %s", n, reason)
			}
			assert.Contains(t, log.String(), "store does not answer")
			assert.Contains(t, log.String(), "reason=refused policy=closed")
			assert.Contains(t, log.String(), tt.want)
		})
	}
	assert.NotContains(t, srv.CLI(t, "INFO", "commandstats"), "eval")
}
