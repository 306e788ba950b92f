package ratefields

import (
	"math"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRead(t *testing.T) {
	one := []Limit{{Key: "a", Remaining: 3, Window: 7 * time.Second}}
	known := []Limit{{Key: "a", Remaining: 3, Window: 7 * time.Second, Quota: 10, Period: time.Minute}}
	for name, tt := range map[string]struct {
		limits, policies []string
		want             []Limit
	}{
		"none":                     {nil, nil, nil},
		"policy alone":             {nil, []string{`"a";q=10;w=60`}, nil},
		"limit alone":              {[]string{`"a";r=3;t=7`}, nil, one},
		"both":                     {[]string{`"a";r=3;t=7`}, []string{`"a";q=10;w=60`}, known},
		"another's policy":         {[]string{`"a";r=3;t=7`}, []string{`"b";q=10;w=60`}, one},
		"malformed policy":         {[]string{`"a";r=3;t=7`}, []string{`"a";q=10;w=`}, one},
		"tokens":                   {[]string{`a;r=3;t=7`}, []string{`"a";q=10;w=60`}, known},
		"parameters beside":        {[]string{`"a";r=3;x=?1;t=7`}, []string{`"a";q=10;w=60;acme="x"`}, known},
		"no window":                {[]string{`"a";r=3`}, []string{`"a";q=10;w=60`}, nil},
		"no remaining":             {[]string{`"a";t=7`}, nil, nil},
		"malformed":                {[]string{`"a";r=3;t=7, "b";r=`}, nil, nil},
		"old draft":                {[]string{`limit=100, remaining=0, reset=10`}, nil, nil},
		"older draft":              {[]string{`100`}, nil, nil},
		"negative":                 {[]string{`"a";r=-1;t=7`}, nil, nil},
		"fraction":                 {[]string{`"a";r=1.5;t=7`}, nil, nil},
		"text":                     {[]string{`"a";r=3;t="7"`}, nil, nil},
		"inner list":               {[]string{`("a" "b");r=3;t=7`}, nil, nil},
		"negative quota":           {[]string{`"a";r=3;t=7`}, []string{`"a";q=-1;w=-1`}, one},
		"requests":                 {[]string{`"a";r=3;t=7`}, []string{`"a";q=10;w=60;qu="requests"`}, known},
		"request":                  {[]string{`"a";r=3;t=7`}, []string{`"a";q=10;w=60;qu="request"`}, known},
		"bytes":                    {[]string{`"a";r=3;t=7`}, []string{`"a";q=10;w=60;qu="content-bytes"`}, nil},
		"under way":                {[]string{`"a";r=3;t=7`}, []string{`"a";q=10;qu="concurrent-requests"`}, nil},
		"policy of all partitions": {[]string{`"a";r=3;t=7;pk=:YQ==:`}, []string{`"a";q=10;w=60`}, []Limit{{"a\x00a", 3, 7 * time.Second, 10, time.Minute}}},
		"policies of partitions": {
			[]string{`"a";r=3;t=7;pk=:Yg==:`},
			[]string{`"a";q=5;pk=:YQ==:, "a";q=6;pk=:Yg==:`},
			[]Limit{{"a\x00b", 3, 7 * time.Second, 6, 0}},
		},
		"a key that is none": {[]string{`"a";r=3;t=7;pk="b"`}, nil, one},
		// A gateway and a service that both call their limit so.
		"alike": {
			[]string{`"a";r=3;t=7, "a";r=4;t=8`},
			[]string{`"a";q=10;w=60, "a";q=20`},
			[]Limit{known[0], {"a\x00\x002", 4, 8 * time.Second, 20, 0}},
		},
		"in several lines": {
			[]string{`"a";r=3;t=7`, `"b";r=4;t=8`},
			[]string{`"a";q=10;w=60`, `"b";q=20`},
			[]Limit{known[0], {"b", 4, 8 * time.Second, 20, 0}},
		},
		"absurd": {
			[]string{`"a";r=999999999999999;t=999999999999999`},
			nil,
			[]Limit{{"a", 999_999_999_999_999, maxSpan, 0, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, Read(tt.limits, tt.policies)) })
	}
}

// What is written is read.
func TestReadWhatIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := quota.Limit{
			Capacity: rapid.Int64Range(0, quota.MaxTokens).Draw(t, "capacity"),
			Refill:   rapid.Int64Range(1, quota.MaxTokens).Draw(t, "refill"),
			Per:      time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "per")),
		}
		d := leaselimit.Decision{
			Class: rapid.StringMatching(`[a-zA-Z0-9_.-]{1,20}`).Draw(t, "class"), Limit: limit,
			Remaining: rapid.Int64().Draw(t, "remaining"), RetryAfter: time.Duration(rapid.Int64Min(0).Draw(t, "wait")),
		}
		d.Allowed = rapid.Bool().Draw(t, "allowed")
		got := Read([]string{string(AppendLimit(nil, &d))}, []string{string(AppendPolicy(nil, d.Class, limit))})
		if d.RetryAfter == leaselimit.Never && !d.Allowed {
			require.Empty(t, got)
			return
		}
		if full, ok := Fill(limit, max(1, Left(&d))); d.Allowed && (!ok || full == 0) {
			require.Empty(t, got)
			return
		}
		require.Len(t, got, 1)
		require.Equal(t, d.Class, got[0].Key)
		require.Equal(t, min(Left(&d), maxInteger), got[0].Remaining)
		require.Equal(t, min(limit.Capacity, maxInteger), got[0].Quota)
		if !d.Allowed {
			require.Equal(t, span(RetryAfter(&d)), got[0].Window)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add(`"a";r=3;t=7, "a";r=4;t=8;pk=:Yg==:`, `"a";q=10;w=60`)
	f.Add(`("a" "b");r=1`, `a;q=1;qu="requests"`)
	f.Fuzz(func(t *testing.T, limits, policies string) {
		seen := map[string]bool{}
		for _, l := range Read([]string{limits}, []string{policies}) {
			require.False(t, seen[l.Key], "two limits with the key %q", l.Key)
			seen[l.Key] = true
			require.GreaterOrEqual(t, min(l.Remaining, l.Quota, int64(l.Window), int64(l.Period)), int64(0))
			require.LessOrEqual(t, max(l.Window, l.Period), maxSpan)
		}
	})
}
