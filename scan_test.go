package leaselimit

import (
	"context"
	"testing"

	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What scans or changes the table of tenants, eviction and Stats, does so under a lock that no call decided from memory takes.
func TestMC8_NoScanHoldsUpACall(t *testing.T) {
	lim, err := New(membucket.New(), Config{Limits: quota.Fixed(quota.Limit{Capacity: 3}), LeaseSize: 2, LeaseShare: 1, Replicas: 1})
	require.NoError(t, err)
	defer lim.Close(context.Background())
	handle := lim.Tenant("acme")
	d, err := handle.Allow(t.Context())
	require.NoError(t, err)
	require.Equal(t, SourceStore, d.Source)

	lim.tenants.mu.Lock() // a scan begins
	decided := make(chan Decision)
	go func() {
		defer close(decided)
		for _, call := range []func() (Decision, error){
			func() (Decision, error) { return lim.Allow(t.Context(), "acme") },
			func() (Decision, error) { return handle.Allow(t.Context()) },
			func() (Decision, error) { return lim.Allow(t.Context(), "acme") },
		} {
			d, err := call()
			assert.NoError(t, err)
			decided <- d
		}
	}()
	for _, allowed := range []bool{true, true, false} {
		assert.Equal(t, allowed, (<-decided).Allowed)
	}
	lim.tenants.mu.Unlock()
}
