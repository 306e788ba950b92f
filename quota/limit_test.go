package quota_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	const most = quota.MaxTokens
	for _, tt := range []struct {
		name  string
		limit quota.Limit
		wrong string // the field that the error names; "" for a valid limit
	}{
		{"the zero limit", quota.Limit{}, ""},
		{"an ordinary one", quota.PerSecond(10, 20), ""},
		{"no refill", quota.Limit{Capacity: 5}, ""},
		{"no refill, with a period", quota.Limit{Capacity: 5, Per: time.Second}, ""},
		{"slower than one a second", quota.PerMinute(1, 1), ""},
		{"a million a day", quota.Limit{Capacity: 100, Refill: 1e6, Per: 24 * time.Hour}, ""},
		{"one in 292 years", quota.Limit{Capacity: 1, Refill: 1, Per: math.MaxInt64}, ""},
		{"the shortest period", quota.Limit{Capacity: 1, Refill: 1, Per: 1}, ""},
		{"the most", quota.Limit{Capacity: most, Refill: most, Per: 1}, ""},
		{"unlimited", quota.Unlimited, ""},

		{"AV3: period 0", quota.Limit{Capacity: 5, Refill: 1}, "Per"},
		{"AV3: negative period", quota.Limit{Capacity: 5, Refill: 1, Per: -time.Second}, "Per"},
		{"AV3: negative period without refill", quota.Limit{Capacity: 5, Per: -1}, "Per"},
		{"AV3: period of more than 292 years, as it overflows", quota.Limit{Capacity: 5, Refill: 1, Per: overflowed()}, "Per"},
		{"AV3: negative refill", quota.Limit{Capacity: 5, Refill: -1, Per: time.Second}, "Refill"},
		{"AV3: negative refill without period", quota.Limit{Capacity: 5, Refill: -1}, "Refill"},
		{"AV3: the least refill", quota.Limit{Capacity: 5, Refill: math.MinInt64, Per: time.Second}, "Refill"},
		{"AV3: negative capacity", quota.Limit{Capacity: -1}, "Capacity"},
		{"AV3: the least capacity", quota.Limit{Capacity: math.MinInt64, Refill: 1, Per: 1}, "Capacity"},
		{"AV4: everything 0 but the refill", quota.Limit{Refill: 1}, "Per"},
		{"AR16: 2^53", quota.Limit{Capacity: most + 1}, "Capacity"},
		{"AR16: 2^53+1, which a double does not hold", quota.Limit{Capacity: 9007199254740993}, "Capacity"},
		{"AR16: refill of 2^53+1", quota.Limit{Capacity: 1, Refill: 9007199254740993, Per: 1}, "Refill"},
		{"AR20: MaxInt64/2", quota.Limit{Capacity: math.MaxInt64 / 2, Refill: 1, Per: 1}, "Capacity"},
		{"AR20: MaxInt64", quota.Limit{Capacity: math.MaxInt64}, "Capacity"},
		{"AR20: nearly unlimited", quota.Limit{Capacity: math.MaxInt64, Refill: math.MaxInt64, Per: 2}, "Capacity"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.limit.Validate()
			if tt.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, quota.ErrInvalid)
			assert.Contains(t, err.Error(), tt.wrong+" is ", "the field and what it is")
			assert.Contains(t, err.Error(), "must be ", "the bound")
		})
	}
}

// overflowed is 300 years as whoever multiplies durations gets them.
func overflowed() time.Duration {
	years := time.Duration(300)
	return years * 365 * 24 * time.Hour
}

// AV17, QC16: 0 never turns the limiter off. The rate of every limit without refill is a plain 0.
func TestQC16_ZeroRefusesAndUnlimitedIsExplicit(t *testing.T) {
	for _, l := range []quota.Limit{{}, {Refill: 10, Per: time.Second}, quota.PerSecond(0, 0), quota.PerSecond(10, 0)} {
		require.NoError(t, l.Validate(), "%+v", l)
		assert.False(t, l.IsUnlimited(), "%+v", l)
		assert.Equal(t, "blocked", l.String())
	}
	assert.True(t, quota.Unlimited.IsUnlimited())
	assert.Equal(t, "unlimited", quota.Unlimited.String())
	for _, l := range []quota.Limit{
		{Capacity: math.MaxInt64}, {Refill: math.MaxInt64, Per: 1}, {Capacity: quota.MaxTokens, Refill: quota.MaxTokens, Per: 1},
	} {
		assert.False(t, l.IsUnlimited(), "%+v", l)
	}
}

func TestPerMillisecond(t *testing.T) {
	for _, tt := range []struct {
		limit quota.Limit
		rate  float64
	}{
		{quota.PerSecond(10, 1), 0.01},
		{quota.PerMinute(1, 1), 1.0 / 60_000},
		{quota.Limit{Capacity: 1, Refill: 1e6, Per: 24 * time.Hour}, 1e6 / 86_400_000.0},
		{quota.Limit{Capacity: 1, Refill: 1, Per: 1}, 1e6},
		{quota.Limit{Capacity: 1}, 0},
		{quota.Limit{Capacity: 1, Per: time.Second}, 0},
		{quota.Limit{Capacity: 1, Refill: 1}, 0}, // invalid, and yet no Inf
	} {
		assert.InEpsilon(t, 1+tt.rate, 1+tt.limit.PerMillisecond(), 1e-12, "%+v", tt.limit)
	}
}

func TestString(t *testing.T) {
	assert.Equal(t, "20 at 2/1s", quota.PerSecond(2, 20).String())
	assert.Equal(t, "20 at 2/1m0s", quota.PerMinute(2, 20).String())
	assert.Equal(t, "20, no refill", quota.Limit{Capacity: 20}.String())
}

func TestSources(t *testing.T) {
	limit := quota.PerSecond(2, 20)
	got, err := quota.Fixed(limit).Limit(t.Context(), "anyone")
	require.NoError(t, err)
	assert.Equal(t, limit, got)
	got, ok := quota.FixedLimit(quota.Fixed(limit))
	assert.True(t, ok)
	assert.Equal(t, limit, got)

	gone := errors.New("gone")
	src := quota.SourceFunc(func(_ context.Context, tenant string) (quota.Limit, error) {
		if tenant == "nobody" {
			return quota.Limit{}, gone
		}
		return limit, nil
	})
	got, err = src.Limit(t.Context(), "anyone")
	require.NoError(t, err)
	assert.Equal(t, limit, got)
	_, err = src.Limit(t.Context(), "nobody")
	require.ErrorIs(t, err, gone)
	_, ok = quota.FixedLimit(src)
	assert.False(t, ok)
}

func ExampleLimit() {
	blocked := quota.Limit{}
	slow := quota.PerMinute(6, 10)
	daily := quota.Limit{Capacity: 500, Refill: 10_000, Per: 24 * time.Hour}
	fmt.Println(blocked, "|", slow, "|", daily, "|", quota.Unlimited)
	fmt.Println(quota.Limit{Capacity: 10, Refill: 1}.Validate())
	// Output:
	// blocked | 10 at 6/1m0s | 500 at 10000/24h0m0s | unlimited
	// quota: invalid limit: Per is 0s, must be positive where Refill is
}

// A quota of 0 refuses everything by definition, and a period of 0 is an error that names the field, instead of whatever the
// store would make of it.
func TestAV4_ZeroQuotaAndPeriod(t *testing.T) {
	require.NoError(t, quota.Limit{}.Validate())
	require.NoError(t, quota.Limit{Refill: 10, Per: time.Second}.Validate())
	err := quota.Limit{Capacity: 10, Refill: 10}.Validate()
	require.ErrorIs(t, err, quota.ErrInvalid)
	require.ErrorContains(t, err, "Per is 0s")
}
