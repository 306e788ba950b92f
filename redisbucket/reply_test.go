package redisbucket

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asked is the request of most replies here.
func asked() lease.AcquireRequest {
	return lease.AcquireRequest{
		Key:   lease.Key{Tenant: "acme", Class: "default"},
		Terms: lease.Terms{Limit: quota.PerSecond(10, 100), Budget: 10, Share: 25, TTL: time.Second},
		Min:   2, Need: 5, Want: 20, Horizon: time.Second,
	}
}

func TestParseGrant(t *testing.T) {
	full := []any{int64(5), int64(9), int64(3), int64(1), "50", "100.5", "-6.5", "0", int64(1757), "1757.25"}
	g, err := parseGrant(full, asked())
	require.NoError(t, err)
	assert.Equal(t, lease.Grant{
		Waiters: 5, Surplus: 9, Epoch: 1757, Ready: 3, Next: 1, First: 50 * time.Millisecond,
		Spacing: 100500 * time.Microsecond, Level: -6.5, At: 1757.25,
	}, g)
	refused := []any{int64(0), int64(0), int64(0), int64(0), "0", "0", "1", "-1", int64(1757), "1757.25"}
	g, err = parseGrant(refused, asked())
	require.NoError(t, err)
	assert.Equal(t, lease.Grant{Epoch: 1757, At: 1757.25, Level: 1, RetryAfter: lease.Never}, g)

	nobody := asked() // waits
	nobody.Need = 0
	for _, retry := range []string{"0", "1"} {
		_, err = parseGrant([]any{int64(0), int64(9), int64(3), int64(1), "50", "100", "-6.5", retry, int64(1757), "1757.25"}, nobody)
		require.NoError(t, err, "min may be there or not")
	}

	for name, spoil := range map[string]func(r []any) any{
		"nil":                         func([]any) any { return nil },
		"a number":                    func([]any) any { return int64(1) },
		"a text":                      func([]any) any { return "OK" },
		"a map":                       func([]any) any { return map[any]any{"a": 1} },
		"an error":                    func([]any) any { return assert.AnError },
		"too short":                   func(r []any) any { return r[:9] },
		"too long":                    func(r []any) any { return append(r, int64(0)) },
		"waiters of the wrong type":   func(r []any) any { r[0] = "5"; return r },
		"waiters below min":           func(r []any) any { r[0] = int64(1); return r },
		"waiters above need":          func(r []any) any { r[0] = int64(6); return r },
		"negative waiters":            func(r []any) any { r[0] = int64(-1); return r },
		"surplus above want":          func(r []any) any { r[1] = int64(21); return r },
		"negative surplus":            func(r []any) any { r[1] = int64(math.MinInt64); return r },
		"ready above surplus":         func(r []any) any { r[2] = int64(10); return r },
		"next above the rest":         func(r []any) any { r[3] = int64(7); return r },
		"nothing next, but a rest":    func(r []any) any { r[3] = int64(0); return r },
		"negative first":              func(r []any) any { r[4] = "-1"; return r },
		"negative spacing":            func(r []any) any { r[5] = "-0.5"; return r },
		"first is NaN":                func(r []any) any { r[4] = "nan"; return r },
		"level is NaN":                func(r []any) any { r[6] = "NaN"; return r },
		"level is infinite":           func(r []any) any { r[6] = "inf"; return r },
		"level is too large to be":    func(r []any) any { r[6] = "1e999"; return r },
		"level above the capacity":    func(r []any) any { r[6] = "100.5"; return r },
		"level is a number":           func(r []any) any { r[6] = int64(3); return r },
		"level is a float":            func(r []any) any { r[6] = 3.5; return r },
		"level is empty":              func(r []any) any { r[6] = ""; return r },
		"granted, with a retry":       func(r []any) any { r[7] = "1"; return r },
		"granted, never":              func(r []any) any { r[7] = "-1"; return r },
		"retry below never":           func(r []any) any { r[7] = "-2"; return r },
		"refused, without a retry":    func(r []any) any { r[0] = int64(0); return r },
		"epoch of the wrong type":     func(r []any) any { r[8] = "1757"; return r },
		"negative epoch":              func(r []any) any { r[8] = int64(-5); return r },
		"the time is a number":        func(r []any) any { r[9] = int64(1757); return r },
		"the time is infinite":        func(r []any) any { r[9] = "inf"; return r },
		"nil among them":              func(r []any) any { r[8] = nil; return r },
		"all ready, but more to come": func(r []any) any { r[2] = int64(9); r[3] = int64(0); return r },
	} {
		reply := append([]any(nil), full...)
		_, err := parseGrant(spoil(reply), asked())
		assert.ErrorIs(t, err, errReply, name)
	}

	req := asked()
	req.Horizon = 0
	_, err = parseGrant(full, req)
	assert.ErrorIs(t, err, errReply, "future tokens that nobody asked for")
}

func TestParseTheOthers(t *testing.T) {
	charges := []lease.Charge{{Terms: asked().Terms, Cost: 1}, {Terms: asked().Terms, Cost: 2}}
	r, err := parseTake([]any{int64(0), "2.5", "1.5", "0", "1", "100"}, charges)
	require.NoError(t, err)
	assert.Equal(t, lease.TakeReply{At: 2.5, Levels: []lease.Level{
		{Tokens: 1.5}, {Tokens: 1, RetryAfter: 100 * time.Millisecond},
	}}, r)
	for _, v := range []any{
		nil, int64(1),
		[]any{},
		[]any{int64(1), "5", "1", "0"},
		[]any{int64(2), "5", "1", "0", "1", "0"},
		[]any{int64(1), "5", "1", "0", "1", "5"},
		[]any{int64(0), "5", "1", "0", "1", "0"},
		[]any{int64(1), "5", "1", "0", "1", nil},
		[]any{int64(1), "NaN", "1", "0", "1", "0"},
		[]any{int64(1), "1", "0", "1", "0"},
		[]any{true, "5", "1", "0", "1", "0"},
	} {
		_, err := parseTake(v, charges)
		assert.ErrorIs(t, err, errReply, "%v", v)
	}

	item := lease.Return{Unspent: 3}
	require.NoError(t, parseReturn([]any{int64(3)}, item))
	for _, v := range []any{nil, int64(3), []any{}, []any{int64(4)}, []any{int64(-1)}, []any{"3"}} {
		assert.ErrorIs(t, parseReturn(v, item), errReply, "%v", v)
	}

	st, err := parseState([]any{int64(1), "-2.5", int64(7), "-1"}, asked().Terms)
	require.NoError(t, err)
	assert.Equal(t, lease.State{Exists: true, Level: -2.5, Out: 7, RetryAfter: lease.Never}, st)
	for _, v := range []any{
		nil,
		[]any{int64(1), "1", int64(7)},
		[]any{int64(3), "1", int64(7), "0"},
		[]any{int64(1), "1", int64(-7), "0"},
		[]any{int64(1), "101", int64(7), "0"},
		[]any{int64(1), "1", int64(7), "-0.5"},
	} {
		_, err := parseState(v, asked().Terms)
		assert.ErrorIs(t, err, errReply, "%v", v)
	}

	require.NoError(t, parseReset(int64(0)))
	for _, v := range []any{nil, "1", int64(2), int64(-1), []any{int64(1)}} {
		assert.ErrorIs(t, parseReset(v), errReply, "%v", v)
	}
}

// Times are rounded up to whole ns and stay below Never, which has a word of its own.
func TestParsedWaits(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "-0": 0, "1": time.Millisecond, "0.0000001": 1, "1.0000001": time.Millisecond + 1, "-1": lease.Never,
		"1e300": lease.Never - 1, "9223372036854.775807": lease.Never - 1, "86400000": 24 * time.Hour,
	} {
		f := fields{rest: []any{text}}
		assert.Equal(t, want, f.wait("retry", true), text)
		require.NoError(t, f.err)
	}
}

// No reply admits more than was asked for, or makes a wait that is none.
func FuzzAcquireReply(f *testing.F) {
	f.Add("i5,i9,i3,i1,s50,s100.5,s-6.5,s0,i1757,s1757.25", int64(2), int64(5), int64(20), true)
	f.Add("i0,i0,i0,i0,s0,s0,s1,s-1,i1757,s1757.25", int64(2), int64(5), int64(20), false)
	f.Add("i0,i4,i0,i4,s0,s1e308,s-1e308,s1e-320,i1,s1", int64(1), int64(1), int64(4), true)
	f.Add("i9223372036854775807,i9223372036854775807,i0,i9223372036854775807,s1,s1,s1,s0,i0,s0", int64(1), int64(1<<62), int64(1<<62), true)
	f.Add("n,i-1,snan,sinf,s,s-1,s0x1p-2,s1_000,i,snan", int64(0), int64(0), int64(0), true)
	f.Fuzz(func(t *testing.T, text string, least, need, want int64, pressed bool) {
		req := asked()
		req.Min, req.Need, req.Want = least, need, want
		if least < 0 || need < 0 || (need > 0 && need < least) || want < 0 {
			return
		}
		if !pressed {
			req.Horizon = 0
		}
		g, err := parseGrant(reply(text), req)
		if err != nil {
			assert.ErrorIs(t, err, errReply)
			assert.Zero(t, g)
			return
		}
		assert.True(t, g.Waiters == 0 || g.Waiters >= least && g.Waiters <= need, "%+v", g)
		assert.True(t, g.Surplus >= 0 && g.Surplus <= want, "%+v", g)
		assert.True(t, g.Ready >= 0 && g.Next >= 0 && g.Ready <= g.Surplus && g.Next <= g.Surplus-g.Ready, "%+v", g)
		assert.True(t, g.First >= 0 && g.Spacing >= 0 && g.RetryAfter >= 0, "%+v", g)
		assert.True(t, g.Level <= float64(req.Terms.Limit.Capacity) && !math.IsInf(g.Level, 0), "%+v", g)
		assert.True(t, g.RetryAfter == 0 || (least > 0 && g.Waiters == 0), "%+v", g)
		assert.True(t, g.RetryAfter > 0 || least == 0 || need == 0 || g.Waiters > 0, "%+v", g)
		if !pressed {
			assert.Equal(t, g.Surplus, g.Ready, "%+v", g)
		}
	})
}

// reply makes a reply of text: its parts are integers, texts or nil.
func reply(text string) any {
	var all []any
	for part := range strings.SplitSeq(text, ",") {
		switch {
		case strings.HasPrefix(part, "i"):
			n, _ := strconv.ParseInt(part[1:], 10, 64)
			all = append(all, n)
		case strings.HasPrefix(part, "s"):
			all = append(all, part[1:])
		default:
			all = append(all, nil)
		}
	}
	return all
}

// No reply to the other steps says what cannot be.
func FuzzOtherReplies(f *testing.F) {
	for _, text := range []string{
		"i1,s5,s0", "i0,s-1,s-1", "i0,s1,s100", "i3", "i-1", "n", "i1,s-2.5,i7,s-1", "i1,s101,i7,s0", "i4,snan,i-7,s1e400", "",
	} {
		f.Add(text, int64(3))
	}
	terms := asked().Terms
	f.Fuzz(func(t *testing.T, text string, n int64) {
		v := reply(text)
		charges := []lease.Charge{{Key: lease.Key{Tenant: "t", Class: "c"}, Terms: terms, Cost: max(1, n)}}
		if r, err := parseTake(v, charges); err == nil {
			assert.Len(t, r.Levels, 1)
			assert.GreaterOrEqual(t, r.Levels[0].RetryAfter, time.Duration(0))
			assert.LessOrEqual(t, r.Levels[0].Tokens, float64(terms.Limit.Capacity))
		} else {
			assert.ErrorIs(t, err, errReply)
		}
		if st, err := parseState(v, terms); err == nil {
			assert.True(t, st.Out >= 0 && st.RetryAfter >= 0 && st.Level <= float64(terms.Limit.Capacity), "%+v", st)
		} else {
			assert.ErrorIs(t, err, errReply)
		}
		all, _ := v.([]any)
		for _, one := range append(all, v) {
			if count, err := parseCensus(one); err == nil {
				assert.GreaterOrEqual(t, count, 0)
			} else {
				assert.ErrorIs(t, err, errReply)
			}
			if err := parseReset(one); err != nil {
				assert.ErrorIs(t, err, errReply)
			}
		}
		if err := parseReturn(v, lease.Return{Unspent: max(0, n)}); err != nil {
			assert.ErrorIs(t, err, errReply)
		}
	})
}
