// Package ratefields writes a decision as the fields of draft-ietf-httpapi-ratelimit-headers-11, whose values are structured
// fields (RFC 9651), and as Retry-After (RFC 9110, section 10.2.3). It knows nothing of how they are sent.
package ratefields

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
)

// The names of the fields, in lower case, as HTTP/2 and gRPC send them.
const (
	PolicyName     = "ratelimit-policy"
	LimitName      = "ratelimit"
	RetryAfterName = "retry-after"
)

// maxInteger is the largest Integer of a structured field: 15 digits (RFC 9651, section 3.3.1). A capacity may be larger.
const maxInteger = 999_999_999_999_999

// Known reports whether there are figures to tell of d: none of an unlimited tenant, and those of a degraded decision would be
// made up.
func Known(d *leaselimit.Decision) bool { return !d.Limit.IsUnlimited() && !d.Degraded() }

// Left is what remains, from 0 to the capacity whatever an Allower says.
func Left(d *leaselimit.Decision) int64 { return min(max(d.Remaining, 0), max(d.Limit.Capacity, 0)) }

// AppendPolicy appends a list of one item, "class";q=capacity;w=seconds from empty to full. There is no w where that is 0, where
// nothing is refilled, or not within 292 years.
func AppendPolicy(b []byte, class string, limit quota.Limit) []byte {
	b = appendItem(b, class, 'q', limit.Capacity)
	if full, ok := Fill(limit, limit.Capacity); ok && full > 0 {
		b = appendInteger(append(b, ";w="...), seconds(full))
	}
	return b
}

// AppendLimit appends a list of one item, "class";r=remaining;t=seconds in which what remains (1 at least) is refilled, so that a
// client that spreads r over t keeps to the limit; of a refusal, t is RetryAfter. There is no t where nothing is refilled, not
// within 292 years, or the call can never pass.
func AppendLimit(b []byte, d *leaselimit.Decision) []byte {
	left := Left(d)
	b = appendItem(b, d.Class, 'r', left)
	t := RetryAfter(d)
	if d.Allowed {
		full, _ := Fill(d.Limit, max(1, left))
		t = seconds(full)
	}
	if t > 0 {
		b = appendInteger(append(b, ";t="...), t)
	}
	return b
}

// RetryAfter is the wait of a refusal in whole seconds, rounded up, at least 1, so that who waits them is not too early. It is 0 if
// the call is allowed or can never pass.
func RetryAfter(d *leaselimit.Decision) int64 {
	if d.Allowed || d.RetryAfter == leaselimit.Never {
		return 0
	}
	return max(1, seconds(d.RetryAfter))
}

// Spread is d as its client is told of it: a refusal is told to wait for up to most longer, at random, and never less. One that can
// never pass stays so.
func Spread(d leaselimit.Decision, most time.Duration) leaselimit.Decision {
	if most > 0 && !d.Allowed && d.RetryAfter < leaselimit.Never-most {
		d.RetryAfter += rand.N(most)
	}
	return d
}

// CheckSpread panics if most, as the option of a package, is out of its bounds.
func CheckSpread(pkg string, most time.Duration) {
	if most < 0 {
		panic(fmt.Sprintf("%s: WithRetrySpread is %v, must be 0 or more", pkg, most))
	}
}

// Fill is how long the refill of tokens takes, rounded up. It reports false if they are never refilled, or not within 292
// years. It is exact: by way of a float64, 3 tokens at 3 a minute are 61 s.
func Fill(limit quota.Limit, tokens int64) (time.Duration, bool) {
	if limit.Refill <= 0 || limit.Per <= 0 || tokens < 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(tokens), uint64(limit.Per))
	lo, carry := bits.Add64(lo, uint64(limit.Refill)-1, 0)
	hi += carry
	if hi >= uint64(limit.Refill) {
		return 0, false
	}
	d, _ := bits.Div64(hi, lo, uint64(limit.Refill))
	if d > math.MaxInt64 {
		return 0, false
	}
	return time.Duration(d), true
}

// FillSeconds is Fill in whole seconds, rounded up.
func FillSeconds(limit quota.Limit, tokens int64) (int64, bool) {
	d, ok := Fill(limit, tokens)
	return seconds(d), ok
}

// seconds is d in whole seconds, rounded up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// appendItem appends the begin of an item: a String and its first parameter. No class of a limiter has what has to be escaped, but
// one of another Allower may; a line feed in it would end the header.
func appendItem(b []byte, class string, param byte, n int64) []byte {
	class = cmp.Or(class, "default")
	b = append(b, '"')
	for i := range len(class) {
		switch c := class[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~': // no String may have it
			b = append(b, '_')
		default:
			b = append(b, c)
		}
	}
	return appendInteger(append(b, '"', ';', param, '='), n)
}

func appendInteger(b []byte, n int64) []byte { return strconv.AppendInt(b, min(n, maxInteger), 10) }
