package httplimit

import (
	"cmp"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
)

// A HeaderSet is the header fields that tell clients of their limit, combined by |.
//
// No set is written for an unlimited tenant, which has nothing to be told, nor with a degraded decision, whose figures would be
// made up.
type HeaderSet uint8

// The header sets.
const (
	// RateLimitDraft11 is RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11 (May 2026):
	//
	//	RateLimit-Policy: "default";q=100;w=10
	//	RateLimit: "default";r=42;t=5
	//
	// The name is the limit's class. q is the capacity, and w the whole seconds, rounded up, in which an empty bucket fills;
	// it is left out where nothing is refilled. r is what remains. t is the whole seconds, rounded up, in which what remains (1
	// at least) is refilled, so that a client which spreads r over t never goes faster than the limit; in a refusal it
	// is Retry-After. It is left out where nothing is refilled, or the request can never pass.
	//
	// Stacked middlewares write one list, with an item for each.
	RateLimitDraft11 HeaderSet = 1 << iota
	// XRateLimit is X-RateLimit-Limit (the capacity), X-RateLimit-Remaining, and X-RateLimit-Reset: the whole seconds, rounded
	// up, until the bucket is full. It is no point in time, and left out where nothing is refilled. No standard defines these
	// fields. Of stacked middlewares, they tell of the one that refuses, or has the least remaining.
	XRateLimit
)

// The names of the fields, in the canonical form of http.Header.
const (
	fieldPolicy     = "Ratelimit-Policy"
	fieldLimit      = "Ratelimit"
	fieldXLimit     = "X-Ratelimit-Limit"
	fieldXRemaining = "X-Ratelimit-Remaining"
	fieldXReset     = "X-Ratelimit-Reset"
	fieldRetryAfter = "Retry-After"
)

// maxInteger is the largest integer of a structured field: 15 digits (RFC 9651, section 3.3.1). Limits may be larger.
const maxInteger int64 = 999_999_999_999_999

// write sets the fields of d, whose Retry-After is retry seconds, or 0. All values are parts of one string and all lists of
// values parts of one slice: two allocations, and the texts are cheaper to write anew than to look up.
func (s HeaderSet) write(h http.Header, d *leaselimit.Decision, retry int64) {
	if s == 0 || d.Degraded() || d.Limit.IsUnlimited() {
		return
	}
	capacity := d.Limit.Capacity
	left := max(0, min(d.Remaining, capacity))
	var (
		room [256]byte
		buf  = room[:0]
		ends [5]int
		used = ends[:2]
	)
	if s&RateLimitDraft11 != 0 {
		t := retry
		if d.Allowed {
			t = fillSeconds(d.Limit, max(1, left))
		}
		name := cmp.Or(d.Class, "default")
		buf = appendItem(buf, name, ";q=", capacity, ";w=", fillSeconds(d.Limit, capacity))
		ends[0] = len(buf)
		buf = appendItem(buf, name, ";r=", left, ";t=", t)
	}
	ends[1] = len(buf)
	if s&XRateLimit != 0 {
		used = ends[:]
		buf = strconv.AppendInt(buf, capacity, 10)
		ends[2] = len(buf)
		buf = strconv.AppendInt(buf, left, 10)
		ends[3] = len(buf)
		if d.Limit.Refill > 0 {
			buf = strconv.AppendInt(buf, fillSeconds(d.Limit, capacity-left), 10)
		}
		ends[4] = len(buf)
	}
	text, from := string(buf), 0
	values := make([]string, len(used))
	for i, end := range used {
		values[i], from = text[from:end], end
	}
	if s&RateLimitDraft11 != 0 {
		addItem(h, fieldPolicy, values[0:1:1])
		addItem(h, fieldLimit, values[1:2:2])
	}
	if s&XRateLimit != 0 && (!d.Allowed || !tighter(h, left)) {
		h[fieldXLimit], h[fieldXRemaining] = values[2:3:3], values[3:4:4]
		delete(h, fieldXReset)
		if values[4] != "" {
			h[fieldXReset] = values[4:5:5]
		}
	}
}

// addItem adds an item to the list in a field, in one line so that a client which reads a single one sees all.
func addItem(h http.Header, field string, item []string) {
	if list := strings.Join(h[field], ", "); list != "" {
		item = []string{list + ", " + item[0]}
	}
	h[field] = item
}

// tighter reports whether h tells of another limit with less remaining already.
func tighter(h http.Header, left int64) bool {
	values := h[fieldXRemaining]
	if len(values) == 0 {
		return false
	}
	other, err := strconv.ParseInt(values[0], 10, 64)
	return err == nil && other <= left
}

// appendItem appends an item of a structured field: a string, and parameters of which the second, which is seconds, is left out if
// it is 0.
func appendItem(buf []byte, name, key1 string, value1 int64, key2 string, value2 int64) []byte {
	buf = append(buf, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			buf = append(buf, '\\', c)
		case c < ' ' || c > '~': // no string may have it, and no limiter's class has
			buf = append(buf, '_')
		default:
			buf = append(buf, c)
		}
	}
	buf = append(buf, '"')
	buf = strconv.AppendInt(append(buf, key1...), min(value1, maxInteger), 10)
	if value2 > 0 {
		buf = strconv.AppendInt(append(buf, key2...), value2, 10)
	}
	return buf
}

// fillSeconds is in how many whole seconds, rounded up, l refills that many tokens; 0 if it never does. It is exact: by way of a
// float64, 3 tokens at 3 a minute are 61 s.
func fillSeconds(l quota.Limit, tokens int64) int64 {
	if l.Refill <= 0 || l.Per <= 0 || tokens <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(tokens), uint64(l.Per))
	if hi >= uint64(l.Refill) {
		return maxInteger
	}
	ns, rest := bits.Div64(hi, lo, uint64(l.Refill))
	if rest > 0 && ns+1 > ns {
		ns++
	}
	const second = uint64(time.Second)
	return int64(ns/second) + int64(min(ns%second, 1))
}
