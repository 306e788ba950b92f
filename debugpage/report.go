package debugpage

import (
	"strings"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
)

// Report is the JSON form of the page. Durations are in seconds, counts are since the limiter or the tenant was new.
type Report struct {
	At       time.Time `json:"at"`
	Search   string    `json:"search,omitempty"` // the tenant asked for
	Limiters []Limiter `json:"limiters"`
}

// Limiter is one limiter.
type Limiter struct {
	Class    string `json:"class"`
	Degraded bool   `json:"degraded"` // the failure policy decides where no lease does
	Replicas int    `json:"replicas"` // 0: unknown

	Allowed  map[string]int64 `json:"allowed"` // calls, by source
	Refused  map[string]int64 `json:"refused"`
	Errors   int64            `json:"errors"`
	Shadowed int64            `json:"shadowed"` // of those refused
	Waited   int64            `json:"waited"`

	AllowedSum int64 `json:"allowed_sum"`
	RefusedSum int64 `json:"refused_sum"`

	Tokens    map[string]int64 `json:"tokens"` // of leases, by where they went
	Tenants   int64            `json:"tenants"`
	Evicted   int64            `json:"evicted"`
	Overshoot float64          `json:"overshoot"` // most that this replica admitted above the limit, of the capacity
	Bound     float64          `json:"bound"`     // of all replicas together, of the capacity

	Store       []Call  `json:"store"`
	StoreErrors []Error `json:"store_errors"` // the latest first, at most 16

	Found   *Tenant  `json:"found,omitempty"` // the tenant asked for, if it is in memory
	Busiest []Tenant `json:"busiest"`
}

// Call is an operation of the store.
type Call struct {
	Op     string           `json:"op"`
	OK     int64            `json:"ok"`
	Failed map[string]int64 `json:"failed"` // by reason
	Median float64          `json:"p50_seconds"`
	P99    float64          `json:"p99_seconds"`
}

// Error is a call to the store that failed.
type Error struct {
	At     time.Time `json:"at"`
	Ago    float64   `json:"ago_seconds"`
	Op     string    `json:"op"`
	Tenant string    `json:"tenant"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
}

// Tenant is one tenant in memory.
type Tenant struct {
	Tenant   string  `json:"tenant"`
	Rate     float64 `json:"calls_per_second"` // of late, of this replica
	Allowed  int64   `json:"allowed"`
	Refused  int64   `json:"refused"`
	Degraded int64   `json:"degraded"`

	Capacity int64   `json:"capacity"`
	Refill   int64   `json:"refill"`
	Per      float64 `json:"per_seconds"`

	Level    int64   `json:"level"`            // in the shared bucket, by its last answer
	Answered float64 `json:"answered_seconds"` // how long ago that was, below 0: not known
	Held     int64   `json:"held"`             // in leases of this replica
	Leases   []Lease `json:"leases"`           // at most 8

	Waiting   int     `json:"waiting"` // calls
	Pressed   bool    `json:"pressed"`
	Failure   string  `json:"failure,omitempty"` // of the last draw
	Reason    string  `json:"failure_reason,omitempty"`
	Overshoot float64 `json:"overshoot"` // of the capacity
	Budget    int64   `json:"budget"`    // tokens by which all replicas together may overshoot
}

// Lease is tokens in hand.
type Lease struct {
	Granted int64   `json:"granted"`
	Left    int64   `json:"left"`
	Ends    float64 `json:"ends_seconds"`
}

const (
	maxLeases = 8
	maxText   = 500 // bytes of an error
)

func newReport(lims []*leaselimit.Limiter, search string, rows int) *Report {
	r := &Report{At: time.Now(), Search: search}
	for _, l := range lims {
		r.Limiters = append(r.Limiters, newLimiter(l, search, rows, r.At))
	}
	return r
}

func newLimiter(l *leaselimit.Limiter, search string, rows int, now time.Time) Limiter {
	s, store := l.Stats(), l.StoreStats()
	out := Limiter{
		Class: l.Class(), Degraded: s.Degraded, Replicas: int(s.Replicas),
		Allowed: map[string]int64{
			"lease": s.AllowedLease, "store": s.AllowedStore, "fallback": s.AllowedFallback, "unlimited": s.AllowedUnlimited,
		},
		Refused: map[string]int64{
			"precheck": s.RefusedPrecheck, "store": s.RefusedStore, "floor": s.RefusedFloor, "fallback": s.RefusedFallback,
			"capacity": s.RefusedNever,
		},
		Errors: s.Errors, Shadowed: s.Shadowed, Waited: s.Waited, AllowedSum: s.Allowed(), RefusedSum: s.Refused(),
		Tokens: map[string]int64{
			"granted": s.TokensGranted, "spent": s.TokensSpent, "returned": s.TokensReturned, "lost": s.TokensLost,
			"stranded": s.TokensStranded, "held": s.TokensHeld,
		},
		Tenants: s.Tenants, Evicted: s.Evicted, Overshoot: s.Overshoot, Bound: s.MaxOvershoot,
		StoreErrors: []Error{}, Busiest: []Tenant{},
	}
	for i := range store.Calls {
		out.Store = append(out.Store, newCall(&store.Calls[i]))
	}
	for _, e := range store.Errors {
		out.StoreErrors = append(out.StoreErrors, Error{
			At: e.At, Ago: now.Sub(e.At).Seconds(), Op: e.Op, Tenant: e.Tenant, Reason: string(e.Reason), Text: short(e.Err.Error()),
		})
	}
	if search != "" {
		if t, ok := l.TenantStats(search); ok {
			found := newTenant(&t)
			out.Found = &found
		}
	}
	for _, t := range l.Tenants(rows) {
		out.Busiest = append(out.Busiest, newTenant(&t))
	}
	return out
}

func newCall(s *lease.CallStats) Call {
	c := Call{
		Op: s.Op, OK: s.OK, Failed: map[string]int64{},
		Median: s.Latency.Quantile(0.5).Seconds(), P99: s.Latency.Quantile(0.99).Seconds(),
	}
	for reason, n := range s.Failed {
		if n > 0 {
			c.Failed[string(reason)] = n
		}
	}
	return c
}

func newTenant(s *leaselimit.TenantStats) Tenant {
	t := Tenant{
		Tenant: s.Tenant, Rate: s.Rate, Allowed: s.Allowed, Refused: s.Refused, Degraded: s.Degraded,
		Capacity: s.Limit.Capacity, Refill: s.Limit.Refill, Per: s.Limit.Per.Seconds(),
		Level: s.Level, Answered: s.Answered.Seconds(), Held: s.Held, Leases: []Lease{},
		Waiting: s.Waiting, Pressed: s.Pressed, Overshoot: s.Overshoot, Budget: s.Budget,
	}
	if s.Failure != nil {
		t.Failure, t.Reason = short(s.Failure.Error()), string(lease.ReasonOf(s.Failure))
	}
	for i, l := range s.Leases {
		if i == maxLeases {
			break
		}
		t.Leases = append(t.Leases, Lease{Granted: l.Granted, Left: l.Left, Ends: l.Ends.Seconds()})
	}
	return t
}

// onPage is how many errors the page has; the JSON has all.
const onPage = 5

// Latest are the errors for the page.
func (l Limiter) Latest() []Error { return l.StoreErrors[:min(onPage, len(l.StoreErrors))] }

// Older is how many errors the page leaves out.
func (l Limiter) Older() int { return len(l.StoreErrors) - len(l.Latest()) }

func short(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Used reports whether the operation was, or is one that every limiter uses.
func (c Call) Used() bool { return c.OK+c.FailedSum() > 0 || c.Op == "acquire" || c.Op == "return" }

// FailedSum is the number of calls that failed.
func (c Call) FailedSum() (n int64) {
	for _, v := range c.Failed {
		n += v
	}
	return n
}
