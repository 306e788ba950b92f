package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/ratefields"
)

// setRetryAfter sets Retry-After of a refusal; none if it can never pass. A longer wait that is there already is kept.
func setRetryAfter(h http.Header, d *leaselimit.Decision) {
	seconds := ratefields.RetryAfter(d)
	if seconds == 0 {
		h.Del(fieldRetryAfter)
		return
	}
	told := max(d.RetryAfter, time.Duration(seconds)*time.Second) // the product of the longest does not fit
	if other, ok := retryAfter(h, time.Now()); !ok || other <= told {
		h[fieldRetryAfter] = []string{strconv.FormatInt(seconds, 10)}
	}
}

// retryAfter is the longest wait in the Retry-After fields of h: seconds, or an HTTP date (RFC 9110, section 10.2.3). A date
// counts from Date, as the server's clock may differ, or from now where there is none; one in the past is 0. What is
// neither is not ok.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	for _, value := range h[fieldRetryAfter] {
		d, valid := parseRetryAfter(value, h, now)
		if valid {
			wait, ok = max(wait, d), true
		}
	}
	return wait, ok
}

func parseRetryAfter(value string, h http.Header, now time.Time) (time.Duration, bool) {
	if isDigits(value) {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > math.MaxInt64/int64(time.Second) {
			return math.MaxInt64, true // out of range, and so is the wait
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return at.Sub(now), true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
