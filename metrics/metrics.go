// Package metrics gives the counts of limiters to Prometheus. It registers nothing by itself, and what it counts is derived
// when it is scraped from what the limiters know anyway, so it costs a decision nothing. No metric has a tenant label: the
// number of series does not depend on the number of tenants.
package metrics

import (
	"github.com/leaselimit/leaselimit"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	decisions = desc("decisions_total", "Calls decided, by who decided and how. Refusals that shadow mode let pass are refused.",
		"source", "outcome")
	undecided   = desc("errors_total", "Calls that were not decided: invalid, cancelled, or without a limit.")
	shadowed    = desc("shadowed_total", "Refusals that shadow mode let pass.")
	waited      = desc("waited_total", "Calls that waited for the store.")
	storeCalls  = desc("store_calls_total", "Calls to the store, by operation.", "op")
	storeFailed = desc("store_failures_total", "Draws that the store did not answer.")
	storeLate   = desc("store_late_total", "Draws answered after the store timeout.")
	tokens      = desc("lease_tokens_total", "Tokens of leases, by where they went.", "fate")
	held        = desc("lease_tokens_held", "Tokens in leases now.")
	tenants     = desc("tenants", "Tenants in memory.")
	evicted     = desc("tenants_evicted_total", "Tenants that made room for others.")
	overshoot   = desc("overshoot_ratio", "Most that this replica alone admitted above capacity and refill, of the capacity.")
	bound       = desc("overshoot_bound_ratio", "The budget for all replicas together, of the capacity.")
	degraded    = desc("degraded", "1 while the failure policy decides.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("leaselimit_"+name, help, append([]string{"class"}, labels...), nil)
}

// NewCollector returns a collector of the counts of lims, by their class; limiters of one class are added up. Its names and
// labels are part of the API.
func NewCollector(lims ...*leaselimit.Limiter) prometheus.Collector {
	return &collector{lims: append([]*leaselimit.Limiter(nil), lims...)}
}

type collector struct{ lims []*leaselimit.Limiter }

// Describe sends all descriptions, so that a registry sees a second collector of the same metrics as what it is.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		decisions, undecided, shadowed, waited, storeCalls, storeFailed, storeLate, tokens, held, tenants, evicted, overshoot, bound,
		degraded,
	} {
		ch <- d
	}
}

// Collect visits every tenant in memory, once for each limiter.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	var order []string
	byClass := map[string]leaselimit.Stats{}
	for _, l := range c.lims {
		sum, known := byClass[l.Class()]
		if !known {
			order = append(order, l.Class())
		}
		byClass[l.Class()] = sum.Plus(l.Stats())
	}
	for _, class := range order {
		collect(ch, class, byClass[class])
	}
}

func collect(ch chan<- prometheus.Metric, class string, s leaselimit.Stats) {
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{class}, labels...)...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, class)
	}
	const allowed, refused = "allowed", "refused"
	count(decisions, s.AllowedLease, "lease", allowed)
	count(decisions, s.AllowedStore, "store", allowed)
	count(decisions, s.AllowedFallback, "fallback", allowed)
	count(decisions, s.AllowedUnlimited, "unlimited", allowed)
	count(decisions, s.RefusedPrecheck, "precheck", refused)
	count(decisions, s.RefusedStore, "store", refused)
	count(decisions, s.RefusedFloor, "floor", refused)
	count(decisions, s.RefusedFallback, "fallback", refused)
	count(decisions, s.RefusedNever, "capacity", refused)
	count(decisions, s.RefusedTogether, "together", refused)
	count(undecided, s.Errors)
	count(shadowed, s.Shadowed)
	count(waited, s.Waited)
	count(storeCalls, s.Draws, "acquire")
	count(storeCalls, s.Returns, "return")
	count(storeFailed, s.DrawFailures)
	count(storeLate, s.LateDraws)
	count(tokens, s.TokensGranted, "granted")
	count(tokens, s.TokensSpent, "spent")
	count(tokens, s.TokensReturned, "returned")
	count(tokens, s.TokensLost, "lost")
	count(tokens, s.TokensStranded, "stranded")
	gauge(held, float64(s.TokensHeld))
	gauge(tenants, float64(s.Tenants))
	count(evicted, s.Evicted)
	gauge(overshoot, s.Overshoot)
	gauge(bound, s.MaxOvershoot)
	down := 0.0
	if s.Degraded {
		down = 1
	}
	gauge(degraded, down)
}
