package httplimit

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/ratefields"
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

// write sets the fields of d but Retry-After. All values are parts of one string and all lists of
// values parts of one slice: two allocations, and the texts are cheaper to write anew than to look up.
func (s HeaderSet) write(h http.Header, d *leaselimit.Decision) {
	if s == 0 || !ratefields.Known(d) {
		return
	}
	capacity, left := d.Limit.Capacity, ratefields.Left(d)
	var (
		room [256]byte
		buf  = room[:0]
		ends [5]int
		used = ends[:2]
	)
	if s&RateLimitDraft11 != 0 {
		buf = ratefields.AppendPolicy(buf, d.Class, d.Limit)
		ends[0] = len(buf)
		buf = ratefields.AppendLimit(buf, d)
	}
	ends[1] = len(buf)
	if s&XRateLimit != 0 {
		used = ends[:]
		buf = strconv.AppendInt(buf, capacity, 10)
		ends[2] = len(buf)
		buf = strconv.AppendInt(buf, left, 10)
		ends[3] = len(buf)
		if full, ok := ratefields.FillSeconds(d.Limit, capacity-left); ok {
			buf = strconv.AppendInt(buf, full, 10)
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
