// Package ratefields writes a decision as the fields of draft-ietf-httpapi-ratelimit-headers-11, whose values are structured
// fields (RFC 9651), and as Retry-After (RFC 9110, section 10.2.3). It knows nothing of how they are sent.
package ratefields

import (
	"math"
	"math/bits"
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

// maxInteger is the largest Integer of a structured field: 15 digits. A capacity may be larger.
const maxInteger = 999_999_999_999_999

// Policy is a list of one item, "class";q=capacity;w=seconds from empty to full. There is no w where nothing is refilled. It
// is "" of an unlimited tenant.
func Policy(class string, limit quota.Limit) string {
	if limit.IsUnlimited() {
		return ""
	}
	var room [128]byte
	b := item(room[:0], class, 'q', limit.Capacity)
	if full, ok := Fill(limit, limit.Capacity); ok {
		b = integer(append(b, ";w="...), Seconds(full))
	}
	return string(b)
}

// Limit is a list of one item, "class";r=remaining;t=seconds in which what remains (1 at least) is refilled, so that a client
// that spreads r over t keeps to the limit; of a refusal, t is RetryAfter. There is no t where nothing is refilled, or the call
// can never pass. It is "" where the figures would be made up: of an unlimited tenant, and of a degraded decision.
func Limit(d leaselimit.Decision) string {
	if d.Limit.IsUnlimited() || d.Degraded() {
		return ""
	}
	left := min(max(d.Remaining, 0), d.Limit.Capacity)
	var room [128]byte
	b := item(room[:0], d.Class, 'r', left)
	if wait := RetryAfter(d); wait != "" {
		b = append(append(b, ";t="...), wait...)
	} else if full, ok := Fill(d.Limit, max(1, left)); ok && d.Allowed {
		b = integer(append(b, ";t="...), Seconds(full))
	}
	return string(b)
}

// RetryAfter is the wait of a refusal in whole seconds, rounded up, at least 1. It is "" if the call is allowed or can never
// pass.
func RetryAfter(d leaselimit.Decision) string {
	if d.Allowed || d.RetryAfter == leaselimit.Never {
		return ""
	}
	return strconv.FormatInt(max(1, Seconds(d.RetryAfter)), 10)
}

// Fill is how long the refill of tokens takes, rounded up. It reports false if they are never refilled, or not within 292
// years.
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
	return time.Duration(d), d <= math.MaxInt64
}

// Seconds is d in whole seconds, rounded up.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// item appends the begin of an item: a String and its first parameter. A class has no character that a String would escape.
func item(b []byte, class string, param byte, n int64) []byte {
	b = append(append(append(b, '"'), class...), '"', ';', param, '=')
	return integer(b, n)
}

func integer(b []byte, n int64) []byte { return strconv.AppendInt(b, min(n, maxInteger), 10) }
