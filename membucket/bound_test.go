package membucket

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/lease/storetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manual is a store whose clock the test moves.
func manual(micros int64) (*Store, storetest.Fixture) {
	s := New()
	s.clock = func() float64 { return wire.Clock(micros/1e6, micros%1e6) }
	return s, storetest.Fixture{Store: s, Advance: func(d time.Duration) { micros += d.Microseconds() }}
}

func fixture() storetest.Fixture {
	_, f := manual(1_757_000_000_123_456)
	return f
}

// The bound holds, is reached, and is not kept by fleets that break a rule: else the fleets would prove nothing.
func TestBound(t *testing.T) {
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 500
	}
	worst, broken, err := storetest.Excess(t.Context(), fixture, seeds, storetest.Faults{})
	require.NoError(t, err)
	assert.Zero(t, broken, "of %d fleets exceeded the bound, by up to %v", seeds, worst)
	assert.InDelta(t, 0, worst, 1e-6, "the bound is tight")

	for name, faults := range map[string]storetest.Faults{
		"repeated reports": {RepeatReports: true},
		"late spending":    {SpendLate: true},
		"kept waiters":     {KeepWaiters: true},
	} {
		worst, broken, err := storetest.Excess(t.Context(), fixture, 500, faults)
		require.NoError(t, err)
		assert.NotZero(t, broken, name)
		t.Logf("%s: %d of 500 exceeded the bound, by up to %.1f tokens", name, broken, worst)
	}
}
