package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers-11, section 5, with their titles.
const (
	typeQuota     = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	titleQuota    = "Request cannot be satisfied as assigned quota has been exceeded"
	typeCapacity  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	titleCapacity = "Request cannot be satisfied due to temporary server capacity constraints"
)

// A problem is a body of application/problem+json (RFC 9457). Without a type it is about:blank: no more than its status.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

func (p problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // strings and a number have no such error
		http.Error(w, p.Title, p.Status)
		return
	}
	h := w.Header()
	for _, field := range []string{"Content-Encoding", "Etag", "Last-Modified"} { // what an outer handler said of another body
		h.Del(field)
	}
	h.Set("Cache-Control", "no-store") // as RFC 6585, section 4, demands of a 429
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that went away is nobody's to tell
}

// answerRefused is the answer to a refused request. FailClosed refuses whatever the tenant did: that is a fault behind the service,
// and no limit that was exceeded.
func answerRefused(w http.ResponseWriter, _ *http.Request, d leaselimit.Decision) {
	p := problem{Type: typeQuota, Title: titleQuota, Status: http.StatusTooManyRequests, Violated: []string{d.Class}}
	retry := w.Header().Get(fieldRetryAfter)
	switch {
	case d.Degraded() && d.Policy == leaselimit.FailClosed:
		p.Type, p.Title, p.Status = typeCapacity, titleCapacity, http.StatusServiceUnavailable
	case retry == "":
		p.Detail = fmt.Sprintf("A request like this can never pass the limit %q.", d.Class)
	default:
		p.Detail = fmt.Sprintf("The limit %q is used up. Try again in %s s.", d.Class, retry)
	}
	p.write(w)
}

// answerError is the answer to a request on which nothing was decided. What failed is for the log, and not for clients.
func answerError(w http.ResponseWriter, _ *http.Request, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, ErrNoTenant):
		status = http.StatusUnauthorized
	case errors.Is(err, quota.ErrUnknownTenant):
		status = http.StatusForbidden
	case errors.Is(err, leaselimit.ErrInvalidCost):
		status = http.StatusInternalServerError
	}
	problem{Title: http.StatusText(status), Status: status}.write(w)
}
