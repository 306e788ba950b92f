// Command grpc is a gRPC server with a limit and its clients in one program. It shows what a refused call looks like, what a
// polite client makes of it, and a stream that is charged by the message.
//
//	go run ./examples/grpc
//	go run ./examples/grpc -redis localhost:6379
//
// The service is the test service that comes with grpc-go, so that there is no generated code to look past.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/grpclimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func main() {
	addr := flag.String("redis", "", "host:port of Redis; in memory if empty")
	flag.Parse()
	var store lease.Store = membucket.New()
	closeStore := func() error { return nil }
	if *addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
		store, closeStore = redisbucket.New(rdb), rdb.Close
	}
	if err := errors.Join(run(context.Background(), store, os.Stdout), closeStore()); err != nil {
		log.Fatal(err)
	}
}

type tenantKey struct{}

// authenticate stands for an interceptor that checks credentials: it turns a token into an identity, once, where clients
// cannot reach it. Never charge a name that the client itself put into the metadata.
func authenticate(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	identities := map[string]string{"Bearer secret-of-acme": "acme"}
	for _, token := range md.Get("authorization") {
		if tenant, ok := identities[token]; ok {
			return context.WithValue(ctx, tenantKey{}, tenant)
		}
	}
	return ctx
}

func authUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(authenticate(ctx), req)
}

type authenticated struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // this is how a stream has a context
}

func (s authenticated) Context() context.Context { return s.ctx }

func authStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, authenticated{ss, authenticate(ss.Context())})
}

// tenant reads what authenticate left. "" is answered with Unauthenticated.
func tenant(ctx context.Context, _ string) (string, error) {
	name, _ := ctx.Value(tenantKey{}).(string)
	return name, nil
}

type service struct {
	pb.UnimplementedTestServiceServer
}

func (service) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) { return &pb.Empty{}, nil }

func (service) StreamingInputCall(stream pb.TestService_StreamingInputCallServer) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.StreamingInputCallResponse{})
		} else if err != nil {
			return err
		}
	}
}

func run(ctx context.Context, store lease.Store, out io.Writer) error {
	lim, err := leaselimit.New(store, leaselimit.Config{
		Limits:       quota.Fixed(quota.PerSecond(2, 3)), // bursts of 3, and a call every half second
		StoreTimeout: 10 * time.Second,                   // generous, for a machine that is busy; the default is 50ms
	})
	if err != nil {
		return err
	}
	defer func() { _ = lim.Close(ctx) }() // returns what is leased

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(authUnary, grpclimit.UnaryServerInterceptor(lim, tenant)),
		grpc.ChainStreamInterceptor(authStream, grpclimit.StreamServerInterceptor(lim, tenant, grpclimit.WithPerMessage())),
	)
	pb.RegisterTestServiceServer(server, service{})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(listener) }()
	defer server.GracefulStop()

	plain, err := dial(listener.Addr().String())
	if err != nil {
		return err
	}
	defer func() { _ = plain.Close() }()
	polite, err := dial(listener.Addr().String(), grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(
		grpclimit.WithRetryMethods(pb.TestService_EmptyCall_FullMethodName))))
	if err != nil {
		return err
	}
	defer func() { _ = polite.Close() }()
	return show(ctx, pb.NewTestServiceClient(plain), pb.NewTestServiceClient(polite), out)
}

func dial(addr string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

func show(ctx context.Context, plain, polite pb.TestServiceClient, out io.Writer) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

	_, err := plain.EmptyCall(ctx, &pb.Empty{})
	say("nobody: %v\n", status.Code(err))

	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer secret-of-acme")
	err = nil
	for call := 1; err == nil; call++ {
		var header metadata.MD
		_, err = plain.EmptyCall(ctx, &pb.Empty{}, grpc.Header(&header))
		say("call %d: %v, ratelimit %v\n", call, status.Code(err), header.Get("ratelimit"))
	}
	if status.Code(err) != codes.ResourceExhausted {
		return err
	}
	for _, detail := range status.Convert(err).Details() {
		say("  its details: %v\n", detail)
	}

	start := time.Now()
	if _, err = polite.EmptyCall(ctx, &pb.Empty{}); err != nil {
		return err
	}
	say("polite call: OK after %v\n", time.Since(start).Round(10*time.Millisecond))

	stream, err := plain.StreamingInputCall(ctx)
	if err != nil {
		return err
	}
	for err == nil { // until the limit ends the stream
		err = stream.Send(&pb.StreamingInputCallRequest{})
	}
	_, err = stream.CloseAndRecv()
	wait, _ := grpclimit.RetryDelay(err)
	say("stream, charged by the message: %v, again in %v\n", status.Code(err), wait.Round(10*time.Millisecond))
	return nil
}
