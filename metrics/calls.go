package metrics

import (
	"maps"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

type callDescs struct{ total, latency *prometheus.Desc }

func newCallDescs(class string) callDescs {
	return callDescs{
		total: describe(class, "store_calls_total",
			"Calls to the store, by operation, and by reason of those that failed; the others are ok.", "op", "reason"),
		latency: describe(class, "store_call_duration_seconds",
			"How long calls to the store took, failed ones too, as seen from here.", "op"),
	}
}

// collect sends the calls of lims, whose class is one. Draws and returns are always there, other operations once they were used.
func (d *callDescs) collect(ch chan<- prometheus.Metric, lims []*leaselimit.Limiter) {
	sum := map[string]*lease.CallStats{}
	for _, l := range lims {
		for _, s := range l.StoreStats().Calls {
			if have := sum[s.Op]; have != nil {
				have.Add(&s)
			} else {
				sum[s.Op] = &s
			}
		}
	}
	for op, s := range sum {
		if s.Latency.Count == 0 && op != "acquire" && op != "return" {
			continue
		}
		count := func(n int64, reason string) {
			ch <- prometheus.MustNewConstMetric(d.total, prometheus.CounterValue, float64(n), op, reason)
		}
		count(s.OK, "ok")
		for reason, n := range s.Failed {
			count(n, string(reason))
		}
		ch <- histogram(d.latency, &s.Latency, op)
	}
}

// both is a histogram with classic buckets and native ones, which the client has no constructor for.
type both struct {
	prometheus.Metric // the classic one

	native prometheus.Metric
}

// Write is part of prometheus.Metric.
func (b both) Write(m *dto.Metric) error {
	var native dto.Metric
	if err := b.native.Write(&native); err != nil {
		return err
	}
	if err := b.Metric.Write(m); err != nil {
		return err
	}
	h := native.GetHistogram()
	h.Bucket, h.CreatedTimestamp = m.GetHistogram().GetBucket(), nil
	m.Histogram = h
	return nil
}

func histogram(d *prometheus.Desc, l *lease.Latency, op string) prometheus.Metric {
	classic, fine := map[float64]uint64{}, maps.Collect(l.Fine)
	for i, bound := range lease.LatencyBounds {
		classic[bound.Seconds()] = uint64(l.Under[i])
	}
	n, sum := uint64(l.Count), l.Sum.Seconds()
	native, err := prometheus.NewConstNativeHistogram(d, n, sum, fine, nil, uint64(l.Zero), lease.LatencySchema, lease.LatencyZero,
		time.Time{}, op)
	if err != nil {
		return prometheus.NewInvalidMetric(d, err)
	}
	return both{prometheus.MustNewConstHistogram(d, n, sum, classic, op), native}
}
