package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/metrics"
	"github.com/leaselimit/leaselimit/otellimit"
	"github.com/leaselimit/leaselimit/quota"
	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// traced is a store whose client makes spans, and which can be cut off.
type traced struct {
	*membucket.Store

	tracer trace.Tracer
	cut    atomic.Bool
}

func (s *traced) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	_, span := s.tracer.Start(ctx, "evalsha")
	defer span.End()
	if s.cut.Load() {
		return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errors.New("no route to host")}
	}
	return s.Store.Acquire(ctx, req)
}

func TestSpansOfStoreCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exporter := tracetest.NewInMemoryExporter()
		tp := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
		store := &traced{Store: membucket.New(), tracer: tp.Tracer("client")}
		lim, err := leaselimit.New(store, leaselimit.Config{
			Limits: quota.Fixed(quota.Limit{Capacity: 10}), LeaseSize: 3, LeaseShare: 1, Replicas: 1,
			Observer: otellimit.Observer(tp, otellimit.WithTenant()), Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		_, err = lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		spans := exporter.GetSpans()
		require.Len(t, spans, 2)
		client, draw := spans[0], spans[1]
		assert.Equal(t, "leaselimit acquire", draw.Name)
		assert.Equal(t, trace.SpanKindClient, draw.SpanKind)
		assert.Equal(t, otellimit.Name, draw.InstrumentationScope.Name)
		assert.Equal(t, draw.SpanContext.SpanID(), client.Parent.SpanID(), "the client's span is a child")
		assert.Subset(t, draw.Attributes, []attribute.KeyValue{
			attribute.String("leaselimit.class", "default"), attribute.String("leaselimit.tenant", "acme"),
			attribute.Int64("leaselimit.need", 1), attribute.Int64("leaselimit.want", 3),
			attribute.Int64("leaselimit.granted", 1), attribute.Int64("leaselimit.leased", 3), attribute.Float64("leaselimit.level", 6),
		})

		exporter.Reset()
		store.cut.Store(true)
		_, err = lim.Allow(t.Context(), "bolt")
		require.NoError(t, err)
		draw = exporter.GetSpans()[1]
		assert.Equal(t, codes.Error, draw.Status.Code)
		assert.Contains(t, draw.Attributes, attribute.String("error.type", "refused"))
		require.Len(t, draw.Events, 1)

		exporter.Reset()
		require.NoError(t, lim.Close(t.Context()))
		back := exporter.GetSpans()
		require.Len(t, back, 1)
		assert.Equal(t, "leaselimit return", back[0].Name)
		assert.Contains(t, back[0].Attributes, attribute.Int64("leaselimit.given_back", 3))
	})
}

// shown is a limiter whose spans go to the exporter.
func shown(t *testing.T, opts ...otellimit.Option) (*leaselimit.Limiter, *tracetest.InMemoryExporter) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	lim, err := leaselimit.New(membucket.New(), leaselimit.Config{
		Limits: quota.Fixed(quota.PerSecond(1, 1)), Observer: otellimit.Observer(tp, opts...),
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lim.Close(context.Background())) })
	return lim, exporter
}

func TestTheTenantIsLeftOut(t *testing.T) {
	lim, exporter := shown(t)
	_, err := lim.Peek(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, exporter.GetSpans(), 1)
	for _, a := range exporter.GetSpans()[0].Attributes {
		assert.NotEqual(t, "acme", a.Value.AsString())
	}
}

// Exporters that speak protobuf lose all spans of a batch if one has text that is no UTF-8.
func TestTheTenantIsText(t *testing.T) {
	lim, exporter := shown(t, otellimit.WithTenant())
	_, err := lim.Peek(t.Context(), "ac\xffme")
	require.NoError(t, err)
	require.Len(t, exporter.GetSpans(), 1)
	assert.Contains(t, exporter.GetSpans()[0].Attributes, attribute.String("leaselimit.tenant", "ac\uFFFDme"))
}

// Counting the replicas is a call about no tenant.
func TestACallAboutNoTenantHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, exporter := shown(t, otellimit.WithTenant())
		_, err := lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		synctest.Wait()
		var names []string
		for _, s := range exporter.GetSpans() {
			names = append(names, s.Name)
			for _, a := range s.Attributes {
				assert.False(t, s.Name == "leaselimit present" && a.Key == "leaselimit.tenant")
			}
		}
		assert.ElementsMatch(t, []string{"leaselimit acquire", "leaselimit present"}, names)
	})
}

// Metrics are those of package metrics, read by the bridge.
func Example_metrics() {
	lim, err := leaselimit.New(membucket.New(), leaselimit.Config{
		Limits: quota.Fixed(quota.Limit{Capacity: 5}), StoreTimeout: time.Second,
	})
	if err != nil {
		panic(err)
	}
	defer lim.Close(context.Background())

	reg := promclient.NewRegistry()
	reg.MustRegister(metrics.NewCollector(lim))
	reader := metric.NewManualReader(metric.WithProducer(prometheus.NewMetricProducer(prometheus.WithGatherer(reg))))
	provider := metric.NewMeterProvider(metric.WithReader(reader)) // in a service: a periodic reader with an OTLP exporter
	defer func() { _ = provider.Shutdown(context.Background()) }()

	for range 7 {
		_, _ = lim.Allow(context.Background(), "acme")
	}
	var got metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &got); err != nil {
		panic(err)
	}
	calls := map[string]float64{}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[float64]); ok && m.Name == "leaselimit_decisions_total" {
			for _, p := range sum.DataPoints {
				outcome, _ := p.Attributes.Value("outcome")
				calls[outcome.AsString()] += p.Value
			}
		}
	}
	fmt.Println(calls)
	// Output: map[allowed:5 refused:2]
}
