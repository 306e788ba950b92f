package metrics

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/leaselimit/leaselimit"
	"github.com/prometheus/client_golang/prometheus"
)

// TenantOptions say which tenants [NewTenantCollector] tells apart. There have to be some: Names, Top, or both.
type TenantOptions struct {
	// Names are tenants that are always told apart, while they are in memory.
	Names []string
	// Top is how many of the busiest tenants of each limiter are told apart beside them, 0 to 1000: those with the most calls
	// a second when it is scraped, refused ones too. All tenants in memory are looked at, so the choice is no estimate.
	Top int
	// HashKey, if set, puts the first 8 bytes of the tenant's HMAC-SHA256 with this key in the label, in hex, in place of the
	// tenant.
	HashKey []byte
}

const maxTop = 1000

// NewTenantCollector returns a collector of the calls allowed and refused of some tenants of lims: at most two series for each of
// Names and Top of each limiter. A tenant that made room for others and came back begins at 0; one that is no longer among
// the busiest is left out.
//
// Limiters of one class are not to be given to it together: their tenants would be the same.
func NewTenantCollector(opts TenantOptions, lims ...*leaselimit.Limiter) (prometheus.Collector, error) {
	switch {
	case opts.Top < 0 || opts.Top > maxTop:
		return nil, fmt.Errorf("metrics: Top is %d, must be 0 to %d", opts.Top, maxTop)
	case opts.Top == 0 && len(opts.Names) == 0:
		return nil, errors.New("metrics: neither Names nor Top is set")
	}
	c := &tenantCollector{opts: opts, lims: lims}
	seen := map[string]bool{}
	for _, l := range lims {
		if seen[l.Class()] {
			return nil, fmt.Errorf("metrics: two limiters of the class %q", l.Class())
		}
		seen[l.Class()] = true
		c.descs = append(c.descs, describe(l.Class(), "tenant_decisions_total",
			"Calls of one tenant since it is in memory, by outcome. Refusals that shadow mode let pass are refused.", "tenant", "outcome"))
	}
	return c, nil
}

type tenantCollector struct {
	opts  TenantOptions
	lims  []*leaselimit.Limiter
	descs []*prometheus.Desc // one for each of lims
}

func (c *tenantCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *tenantCollector) Collect(ch chan<- prometheus.Metric) {
	for i, l := range c.lims {
		sent := map[string]bool{}
		send := func(s *leaselimit.TenantStats) {
			label := c.label(s.Tenant)
			if sent[label] {
				return
			}
			sent[label] = true
			for outcome, n := range map[string]int64{"allowed": s.Allowed, "refused": s.Refused} {
				ch <- prometheus.MustNewConstMetric(c.descs[i], prometheus.CounterValue, float64(n), label, outcome)
			}
		}
		for _, name := range c.opts.Names {
			if s, ok := l.TenantStats(name); ok {
				send(&s)
			}
		}
		for _, s := range l.Tenants(c.opts.Top) {
			send(&s)
		}
	}
}

// label is what stands for a tenant. A label has to be UTF-8, which a tenant need not be.
func (c *tenantCollector) label(tenant string) string {
	if len(c.opts.HashKey) == 0 {
		return strings.ToValidUTF8(tenant, "\uFFFD")
	}
	mac := hmac.New(sha256.New, c.opts.HashKey)
	mac.Write([]byte(tenant))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
