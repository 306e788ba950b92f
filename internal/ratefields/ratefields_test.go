package ratefields

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPolicy(t *testing.T) {
	for want, limit := range map[string]quota.Limit{
		`"export";q=100;w=10`:            quota.PerSecond(10, 100),
		`"export";q=3;w=60`:              quota.PerMinute(3, 3),
		`"export";q=10;w=4`:              quota.PerSecond(3, 10),
		`"export";q=5`:                   {Capacity: 5},
		`"export";q=0`:                   quota.PerSecond(1, 0),
		`"export";q=999999999999999;w=1`: quota.PerSecond(quota.MaxTokens, quota.MaxTokens),
		`"export";q=1000000000000`:       {Capacity: 1e12, Refill: 1, Per: time.Hour}, // beyond 292 years
		`"export";q=100;w=1000`:          {Capacity: 100, Refill: 1, Per: 10 * time.Second},
	} {
		require.Equal(t, want, string(AppendPolicy(nil, "export", limit)))
	}
}

func TestLimit(t *testing.T) {
	d := leaselimit.Decision{Class: "export", Limit: quota.PerSecond(2, 10), Source: leaselimit.SourceStore}
	for _, tt := range []struct {
		change      func(*leaselimit.Decision)
		limit, wait string // "" is none
	}{
		{func(d *leaselimit.Decision) { d.Allowed, d.Remaining = true, 10 }, `"export";r=10;t=5`, ""},
		{func(d *leaselimit.Decision) { d.Allowed, d.Remaining = true, 3 }, `"export";r=3;t=2`, ""},
		{func(d *leaselimit.Decision) { d.Allowed = true }, `"export";r=0;t=1`, ""},
		{func(d *leaselimit.Decision) { d.Allowed, d.Remaining = true, -3 }, `"export";r=0;t=1`, ""},
		{func(d *leaselimit.Decision) { d.Allowed, d.Remaining = true, 11 }, `"export";r=10;t=5`, ""},
		{func(d *leaselimit.Decision) { d.RetryAfter = 1 }, `"export";r=0;t=1`, "1"},
		{func(d *leaselimit.Decision) { d.RetryAfter = 0 }, `"export";r=0;t=1`, "1"},
		{func(d *leaselimit.Decision) { d.RetryAfter = 1200 * time.Millisecond }, `"export";r=0;t=2`, "2"},
		{func(d *leaselimit.Decision) { d.RetryAfter = 5 * time.Second }, `"export";r=0;t=5`, "5"},
		{func(d *leaselimit.Decision) { d.RetryAfter, d.Remaining = leaselimit.Never, 7 }, `"export";r=7`, ""},
		{func(d *leaselimit.Decision) { d.Allowed, d.Limit, d.Remaining = true, quota.Limit{Capacity: 3}, 2 }, `"export";r=2`, ""},
		{func(d *leaselimit.Decision) { d.RetryAfter, d.Limit = leaselimit.Never, quota.Limit{Capacity: -1} }, `"export";r=0`, ""},
		{func(d *leaselimit.Decision) { d.Allowed, d.Class, d.Limit = true, "", quota.Limit{} }, `"default";r=0`, ""},
		{func(d *leaselimit.Decision) { d.Allowed, d.Class, d.Limit = true, "a\"\\\r\né", quota.Limit{} }, `"a\"\\____";r=0`, ""},
		{func(d *leaselimit.Decision) { d.Allowed, d.Limit, d.Remaining = true, quota.Unlimited, math.MaxInt64 }, "", ""},
		{func(d *leaselimit.Decision) { d.Allowed, d.Source = true, leaselimit.SourceFallback }, "", ""},
		{func(d *leaselimit.Decision) { d.RetryAfter, d.Source = time.Second, leaselimit.SourceFallback }, "", "1"},
	} {
		d := d
		tt.change(&d)
		require.Equal(t, tt.limit != "", Known(&d), "%+v", d)
		if tt.limit != "" {
			require.Equal(t, tt.limit, string(AppendLimit(nil, &d)), "%+v", d)
		}
		wait := RetryAfter(&d)
		require.Equal(t, tt.wait, strings.TrimPrefix(strconv.FormatInt(wait, 10), "0"), "%+v", d)
	}
}

func TestSpread(t *testing.T) {
	refused := leaselimit.Decision{Class: "c", RetryAfter: time.Second}
	allowed, never, long := refused, refused, refused
	allowed.Allowed, allowed.RetryAfter = true, 0
	never.RetryAfter = leaselimit.Never
	long.RetryAfter = leaselimit.Never - 1
	for _, d := range []leaselimit.Decision{allowed, never, long} {
		require.Equal(t, d, Spread(d, 10*time.Second))
	}
	require.Equal(t, refused, Spread(refused, 0))
	tenths := make([]int, 10)
	for range 10_000 {
		got := Spread(refused, 10*time.Second)
		more := got.RetryAfter - refused.RetryAfter
		require.GreaterOrEqual(t, more, time.Duration(0), "never too early")
		require.Less(t, more, 10*time.Second)
		tenths[more/time.Second]++
		got.RetryAfter = refused.RetryAfter
		require.Equal(t, refused, got, "nothing else is changed")
	}
	for _, n := range tenths {
		require.InDelta(t, 1000, n, 200, "%v", tenths) // beyond 6 standard deviations
	}
	require.PanicsWithValue(t, "pkg: WithRetrySpread is -1ns, must be 0 or more", func() { CheckSpread("pkg", -1) })
	CheckSpread("pkg", 0)
}

// Fill is exact.
func TestFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := quota.Limit{
			Refill: rapid.Int64Range(0, quota.MaxTokens).Draw(t, "refill"),
			Per:    time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "per")),
		}
		tokens := rapid.Int64Range(0, quota.MaxTokens).Draw(t, "tokens")
		got, ok := Fill(limit, tokens)
		if limit.Refill == 0 || limit.Per == 0 {
			require.False(t, ok)
			return
		}
		want := new(big.Int).Mul(big.NewInt(tokens), big.NewInt(int64(limit.Per)))
		want.Add(want, big.NewInt(limit.Refill-1)).Div(want, big.NewInt(limit.Refill))
		require.Equal(t, want.IsInt64(), ok)
		if ok {
			require.Equal(t, want.Int64(), int64(got))
			seconds, _ := FillSeconds(limit, tokens)
			require.Equal(t, want.Add(want, big.NewInt(1e9-1)).Div(want, big.NewInt(1e9)).Int64(), seconds)
		}
	})
}
