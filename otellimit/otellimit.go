// Package otellimit gives what limiters do to OpenTelemetry. It is a module of its own, so that who does not use OpenTelemetry does
// not depend on it.
//
// Spans come from [Observer]: one for each call to the store. Metrics come from the collectors of package metrics, through the bridge
// go.opentelemetry.io/contrib/bridges/prometheus; the example shows how. Native histograms become exponential ones.
//
// What is not promised: that a span of a draw belongs to the trace of a request. A draw is for all calls that wait for it, and
// often for none yet.
package otellimit

import (
	"context"
	"strings"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Name is the name of the instrumentation scope.
const Name = "github.com/leaselimit/leaselimit/otellimit"

// Option is an option of [Observer].
type Option func(*options)

type options struct{ tenant bool }

// WithTenant puts the tenant of a call, if it is about one, on its span, as leaselimit.tenant. It is left out by default: it may be personal data.
func WithTenant() Option { return func(o *options) { o.tenant = true } }

// Observer returns an Observer, for leaselimit.Config, that makes a span of each call to the store, of kind client, named
// "leaselimit acquire" and so on. Spans of the store's own client become its children. A call that fails has the status Error
// and the reason as error.type. Fields of the Observer that are nil are the caller's to set.
func Observer(tp trace.TracerProvider, opts ...Option) *leaselimit.Observer {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	tracer := tp.Tracer(Name)
	return &leaselimit.Observer{
		CallSent: func(ctx context.Context, c lease.Call) context.Context {
			attrs := []attribute.KeyValue{
				attribute.String("leaselimit.operation", c.Op),
				attribute.String("leaselimit.class", c.Key.Class),
				attribute.Int("leaselimit.buckets", c.Buckets),
			}
			if o.tenant && c.Key.Tenant != "" {
				attrs = append(attrs, attribute.String("leaselimit.tenant", strings.ToValidUTF8(c.Key.Tenant, "\uFFFD")))
			}
			switch c.Op {
			case "acquire":
				attrs = append(attrs, attribute.Int64("leaselimit.need", c.Need), attribute.Int64("leaselimit.want", c.Want))
			case "return":
				attrs = append(attrs, attribute.Int64("leaselimit.given_back", c.Given))
			}
			ctx, _ = tracer.Start(ctx, "leaselimit "+c.Op, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
			return ctx
		},
		CallAnswered: func(ctx context.Context, c lease.Call, a lease.Answer) {
			span := trace.SpanFromContext(ctx)
			switch {
			case a.Err != nil:
				span.RecordError(a.Err)
				span.SetStatus(codes.Error, string(a.Reason))
				span.SetAttributes(attribute.String("error.type", string(a.Reason)))
			case c.Op == "acquire":
				span.SetAttributes(
					attribute.Int64("leaselimit.granted", a.Grant.Waiters),
					attribute.Int64("leaselimit.leased", a.Grant.Surplus),
					attribute.Float64("leaselimit.level", a.Grant.Level))
			}
			span.End()
		},
	}
}
