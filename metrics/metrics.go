// Package metrics gives the counts of limiters, and of caches of limits, to Prometheus. It registers nothing by itself, and what
// it counts is derived when it is scraped from what the limiters know anyway, so it costs a decision nothing. docs/metrics.md
// lists all series.
//
// Without [NewTenantCollector] no metric has a tenant label: the number of series does not depend on the number of tenants.
//
// What is not promised: that two counts of one scrape are of the same moment.
package metrics

import (
	"github.com/leaselimit/leaselimit"
	"github.com/prometheus/client_golang/prometheus"
)

// NewCollector returns a collector of the counts of lims, by their class; limiters of one class are added up. Its names and
// labels are part of the API.
//
// Collectors of different classes may be registered side by side. For several limiters of one class that are not to be added up,
// register each with a label of its own: prometheus.WrapRegistererWith(prometheus.Labels{"limiter": "a"}, reg).
func NewCollector(lims ...*leaselimit.Limiter) prometheus.Collector {
	c := &collector{}
	for _, l := range lims {
		c.of(l.Class()).lims = append(c.of(l.Class()).lims, l)
	}
	return c
}

type collector struct{ classes []*class }

// class is the limiters of one class, and the descriptions of what they count.
type class struct {
	name   string
	lims   []*leaselimit.Limiter
	counts []*prometheus.Desc // one for each of counts
	calls  callDescs
}

func (c *collector) of(name string) *class {
	for _, k := range c.classes {
		if k.name == name {
			return k
		}
	}
	k := &class{name: name, calls: newCallDescs(name)}
	for _, m := range counts {
		k.counts = append(k.counts, describe(name, m.name, m.help, m.label...))
	}
	c.classes = append(c.classes, k)
	return k
}

func describe(class, name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("leaselimit_"+name, help, labels, prometheus.Labels{"class": class})
}

// Describe sends all descriptions, so that a registry sees a second collector of the same metrics as what it is.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, k := range c.classes {
		for i, d := range k.counts {
			if i == 0 || counts[i].name != counts[i-1].name {
				ch <- d
			}
		}
		ch <- k.calls.total
		ch <- k.calls.latency
	}
}

// Collect visits every tenant in memory, once for each limiter.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, k := range c.classes {
		var sum leaselimit.Stats
		for _, l := range k.lims {
			sum = sum.Plus(l.Stats())
		}
		for i, m := range counts {
			if m.known == nil || m.known(&sum) {
				ch <- prometheus.MustNewConstMetric(k.counts[i], m.kind, m.value(&sum), m.values...)
			}
		}
		k.calls.collect(ch, k.lims)
	}
}
