package grpclimit_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/grpclimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// asked counts the draws of a store.
type asked struct {
	lease.Store

	draws atomic.Int64
}

func (a *asked) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Grant, error) {
	a.draws.Add(1)
	return a.Store.Acquire(ctx, r)
}

// A tenant that is drained is refused from memory, through the interceptor as without it.
func TestPF10_RefusalsDoNotAskTheStore(t *testing.T) {
	calls := 10_000
	if testing.Short() {
		calls = 2000
	}
	drained := quota.PerMinute(1, 1)

	bare := &asked{Store: membucket.New()}
	lim := limiterOver(t, bare, drained)
	for range calls {
		_, err := lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
	}

	behind := &asked{Store: membucket.New()}
	cc := serve(t, &service{}, limiterOver(t, behind, drained), acme)
	client := pb.NewTestServiceClient(cc)
	var clients sync.WaitGroup
	var refused atomic.Int64
	for range 20 {
		clients.Go(func() {
			for range calls / 20 {
				if _, err := client.EmptyCall(t.Context(), &pb.Empty{}); status.Code(err) == codes.ResourceExhausted {
					refused.Add(1)
				}
			}
		})
	}
	clients.Wait()
	require.GreaterOrEqual(t, refused.Load(), int64(calls-5), "1 and what is refilled meanwhile")
	t.Logf("store calls: %d without, %d with the interceptor", bare.draws.Load(), behind.draws.Load())
	// A pressed limiter asks every C/(8r) = 7.5 s at the most, whatever the number of calls.
	require.LessOrEqual(t, behind.draws.Load(), bare.draws.Load()+20)
}

// A polite client and a real server: every call passes in the end, and none is lost.
func TestPoliteClientAgainstServer(t *testing.T) {
	srv := &service{}
	var refused atomic.Int64
	cc := serveWith(t, srv, []grpc.ServerOption{
		grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter(t, quota.PerSecond(20, 2)), acme,
			grpclimit.WithObserver(func(_ context.Context, e grpclimit.Event) {
				if !e.Decision.Allowed {
					refused.Add(1)
				}
			}))),
	}, grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(
		grpclimit.WithRetryMethods(emptyCall), grpclimit.WithMaxAttempts(20))))
	for range 10 {
		_, err := call(t, cc)
		require.NoError(t, err)
	}
	require.EqualValues(t, 10, srv.calls.Load())
	require.Positive(t, refused.Load())

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := pb.NewTestServiceClient(cc).UnaryCall(ctx, &pb.SimpleRequest{})
	require.Contains(t, []codes.Code{codes.OK, codes.ResourceExhausted}, status.Code(err), "not named, so not made again")
}

// sent is the transport of a call whose metadata go nowhere.
type sent struct{ grpc.ServerTransportStream }

func (sent) SetHeader(metadata.MD) error { return nil }

// interceptor is an admitted call of the interceptor alone.
func interceptor(tb testing.TB, opts ...grpclimit.Option) func() {
	tb.Helper()
	limit := grpclimit.UnaryServerInterceptor(plenty(tb), acme, opts...)
	info := &grpc.UnaryServerInfo{FullMethod: emptyCall}
	ctx := grpc.NewContextWithServerTransportStream(tb.Context(), sent{})
	handler := func(context.Context, any) (any, error) { return nil, nil }
	return func() {
		if _, err := limit(ctx, nil, info, handler); err != nil {
			tb.Error(err)
		}
	}
}

// plenty is a limiter that decides from memory.
func plenty(tb testing.TB) *leaselimit.Limiter {
	tb.Helper()
	return limiter(tb, quota.Limit{Capacity: quota.MaxTokens}, func(c *leaselimit.Config) { c.LeaseSize = 1 << 40 })
}

var kinds = map[string][]grpclimit.Option{"metadata": nil, "plain": {grpclimit.WithoutMetadata()}}

func TestAllocations(t *testing.T) {
	for name, most := range map[string]float64{"metadata": 4, "plain": 0} {
		run := interceptor(t, kinds[name]...)
		run()
		require.LessOrEqual(t, testing.AllocsPerRun(1000, run), most, name)
	}
}

// BenchmarkUnary is a call over loopback.
func BenchmarkUnary(b *testing.B) {
	run := func(name string, opts ...grpc.ServerOption) {
		b.Run(name, func(b *testing.B) {
			client := pb.NewTestServiceClient(serveWith(b, &service{}, opts))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.EmptyCall(b.Context(), &pb.Empty{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("none")
	for name, opts := range kinds {
		run(name, grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(plenty(b), acme, opts...)))
	}
}

// BenchmarkInterceptor is the interceptor alone, without what gRPC does with the metadata.
func BenchmarkInterceptor(b *testing.B) {
	for name, opts := range kinds {
		b.Run(name, func(b *testing.B) {
			run := interceptor(b, opts...)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
