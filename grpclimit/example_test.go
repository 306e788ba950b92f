package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/grpclimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

type identityKey struct{}

// identity is what an interceptor that checks credentials left in the context.
func identity(ctx context.Context, _ string) (string, error) {
	name, _ := ctx.Value(identityKey{}).(string)
	return name, nil
}

// authUnary and authStream stand for such an interceptor.
func authUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(context.WithValue(ctx, identityKey{}, "acme"), req)
}

type withIdentity struct{ grpc.ServerStream }

func (s withIdentity) Context() context.Context {
	return context.WithValue(s.ServerStream.Context(), identityKey{}, "acme")
}

func authStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, withIdentity{ss})
}

func exampleLimiter(limit quota.Limit) *leaselimit.Limiter {
	lim, err := leaselimit.New(membucket.New(), leaselimit.Config{Limits: quota.Fixed(limit), StoreTimeout: time.Second})
	if err != nil {
		panic(err)
	}
	return lim
}

// listen runs a server and returns a client of it.
func listen(server *grpc.Server, opts ...grpc.DialOption) (client pb.TestServiceClient, stop func()) {
	pb.RegisterTestServiceServer(server, &service{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = server.Serve(l) }()
	cc, err := grpc.NewClient(l.Addr().String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	return pb.NewTestServiceClient(cc), func() {
		_ = cc.Close()
		server.Stop()
	}
}

func ExampleUnaryServerInterceptor() {
	ctx := context.Background()
	lim := exampleLimiter(quota.Limit{Capacity: 2})
	defer lim.Close(ctx)

	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
		authUnary, // first who it is, then how much
		grpclimit.UnaryServerInterceptor(lim, identity),
	))
	client, stop := listen(server)
	defer stop()
	for range 3 {
		var header metadata.MD
		_, err := client.EmptyCall(ctx, &pb.Empty{}, grpc.Header(&header))
		fmt.Println(status.Code(err), header.Get("ratelimit-policy"), header.Get("ratelimit"))
	}
	// Output:
	// OK ["default";q=2] ["default";r=1]
	// OK ["default";q=2] ["default";r=0]
	// ResourceExhausted ["default";q=2] ["default";r=0]
}

func ExampleStreamServerInterceptor() {
	ctx := context.Background()
	lim := exampleLimiter(quota.Limit{Capacity: 3})
	defer lim.Close(ctx)

	server := grpc.NewServer(grpc.ChainStreamInterceptor(
		authStream,
		grpclimit.StreamServerInterceptor(lim, identity, grpclimit.WithPerMessage()),
	))
	client, stop := listen(server)
	defer stop()
	stream, err := client.FullDuplexCall(ctx)
	for n := 0; err == nil; n++ {
		if err = stream.Send(&pb.StreamingOutputCallRequest{}); err == nil || errors.Is(err, io.EOF) {
			_, err = stream.Recv()
		}
		if err != nil {
			fmt.Println(status.Code(err), "after", n, "messages")
		}
	}
	// Output:
	// ResourceExhausted after 3 messages
}

func ExampleUnaryClientInterceptor() {
	ctx := context.Background()
	lim := exampleLimiter(quota.PerSecond(10, 1))
	defer lim.Close(ctx)

	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authUnary, grpclimit.UnaryServerInterceptor(lim, identity)))
	client, stop := listen(server, grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(
		grpclimit.WithRetryMethods(pb.TestService_EmptyCall_FullMethodName), // it does no harm to make it twice
		grpclimit.WithMaxWait(5*time.Second),
	)))
	defer stop()
	for range 3 {
		_, err := client.EmptyCall(ctx, &pb.Empty{}) // the second and the third wait
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// OK
}

// A client that slows down as it nears the limit, so that nothing is refused.
func ExampleWithPacing() {
	ctx := context.Background()
	lim := exampleLimiter(quota.PerSecond(20, 10))
	defer lim.Close(ctx)

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(authUnary, grpclimit.UnaryServerInterceptor(lim, identity)),
		grpc.ChainStreamInterceptor(authStream, grpclimit.StreamServerInterceptor(lim, identity)),
	)
	pacing := grpclimit.WithPacing() // one for both, as they share the limit
	client, stop := listen(server,
		grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(pacing)),
		grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(pacing)),
	)
	defer stop()
	refused := 0
	for range 20 { // the bucket has 10 tokens
		if _, err := client.EmptyCall(ctx, &pb.Empty{}); err != nil {
			refused++
		}
	}
	fmt.Println(refused, "refused")
	// Output:
	// 0 refused
}

func ExampleRetry() {
	ctx := context.Background()
	lim := exampleLimiter(quota.PerSecond(10, 1))
	defer lim.Close(ctx)

	server := grpc.NewServer(grpc.ChainStreamInterceptor(authStream, grpclimit.StreamServerInterceptor(lim, identity)))
	client, stop := listen(server)
	defer stop()
	for range 2 {
		// The whole of the stream: what a refusal cuts off begins anew.
		err := grpclimit.Retry(ctx, func(ctx context.Context) error {
			stream, err := client.FullDuplexCall(ctx)
			if err != nil {
				return err
			}
			if err := stream.CloseSend(); err != nil {
				return err
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
}

func ExampleWithCost() {
	ctx := context.Background()
	lim := exampleLimiter(quota.Limit{Capacity: 10})
	defer lim.Close(ctx)

	cost := func(_ string, req any) int64 {
		if r, ok := req.(*pb.SimpleRequest); ok { // dear where much is asked for
			return 1 + int64(r.GetResponseSize())/1024
		}
		return 1
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
		authUnary, grpclimit.UnaryServerInterceptor(lim, identity, grpclimit.WithCost(cost))))
	client, stop := listen(server)
	defer stop()
	var header metadata.MD
	_, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: 4096}, grpc.Header(&header))
	fmt.Println(status.Code(err), header.Get("ratelimit"))
	// Output:
	// OK ["default";r=5]
}
