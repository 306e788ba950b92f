package grpclimit_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/grpclimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service answers, and counts what reached it.
type service struct {
	pb.UnimplementedTestServiceServer

	calls atomic.Int64
	full  func(pb.TestService_FullDuplexCallServer) error // nil echoes
}

func (s *service) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) {
	s.calls.Add(1)
	return &pb.Empty{}, nil
}

func (s *service) UnaryCall(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.calls.Add(1)
	return &pb.SimpleResponse{}, nil
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	s.calls.Add(1)
	if s.full != nil {
		return s.full(stream)
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return nil //nolint:nilerr // a handler that takes every end for a good one
		}
		if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

const (
	emptyCall = "/grpc.testing.TestService/EmptyCall"
	unaryCall = "/grpc.testing.TestService/UnaryCall"
)

// acme is the tenant of every call.
func acme(context.Context, string) (string, error) { return "acme", nil }

// slow is for what is not about time: a machine that is busy is no failed store.
const slow = time.Minute

func limiter(t testing.TB, limit quota.Limit, change ...func(*leaselimit.Config)) *leaselimit.Limiter {
	t.Helper()
	return limiterOver(t, membucket.New(), limit, change...)
}

func limiterOver(t testing.TB, store lease.Store, limit quota.Limit, change ...func(*leaselimit.Config)) *leaselimit.Limiter {
	t.Helper()
	cfg := leaselimit.Config{Limits: quota.Fixed(limit), LeaseTTL: 10 * time.Minute, StoreTimeout: slow}
	for _, f := range change {
		f(&cfg)
	}
	lim, err := leaselimit.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lim.Close(context.Background())) })
	return lim
}

// serve runs srv behind the interceptors, with health and reflection beside it, and returns a connection to it.
func serve(
	t testing.TB, srv *service, lim grpclimit.Allower, tenant func(context.Context, string) (string, error), opts ...grpclimit.Option,
) *grpc.ClientConn {
	t.Helper()
	return serveWith(t, srv, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(lim, tenant, opts...)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(lim, tenant, opts...)),
	})
}

func serveWith(t testing.TB, srv *service, opts []grpc.ServerOption, dial ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	s := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(s, srv)
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	cc, err := grpc.NewClient(l.Addr().String(), append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = cc.Close()
		s.Stop()
		require.NoError(t, <-done)
	})
	return cc
}

// call makes a unary call and returns what the client sees of it.
func call(t testing.TB, cc *grpc.ClientConn) (header metadata.MD, err error) {
	t.Helper()
	_, err = pb.NewTestServiceClient(cc).EmptyCall(t.Context(), &pb.Empty{}, grpc.Header(&header))
	return header, err
}

// details are what a status has beside its code.
func details(t *testing.T, err error) (retry *errdetails.RetryInfo, failure *errdetails.QuotaFailure) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			failure = d
		default:
			require.Fail(t, "what is this?", "%v", d)
		}
	}
	return retry, failure
}
