package serve

import (
	"github.com/leaselimit/leaselimit/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// counts are of the service, beside those of its limiters.
type counts struct {
	answers     *prometheus.CounterVec
	descriptors *prometheus.CounterVec
}

func newCounts() *counts {
	return &counts{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leaselimit_serve_answers_total", Help: "Requests answered, by code: ok, over_limit or error.",
		}, []string{"code"}),
		descriptors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leaselimit_serve_descriptors_total",
			Help: "Descriptors, by what was found for them: matched, unmatched (no rule) or no_tenant (an empty one).",
		}, []string{"match"}),
	}
}

// registry has everything that /metrics shows.
func (c *counts) registry(lims limiters) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(c.answers, c.descriptors, metrics.NewCollector(lims.all()...),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
