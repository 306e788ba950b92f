package grpclimit_test

import (
	"context"
	"io"
	"testing"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/grpclimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// wires adds up the bytes of headers and trailers that a client gets.
type wires struct{ headers, header, trailer int }

func (*wires) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*wires) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*wires) HandleConn(context.Context, stats.ConnStats)                       {}
func (w *wires) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.InHeader:
		w.headers++
		w.header += s.WireLength
	case *stats.InTrailer:
		w.trailer += s.WireLength
	}
}

func streamed(t *testing.T, lim grpclimit.Allower, messages int, opts ...grpclimit.Option) (wires, error) {
	t.Helper()
	var w wires
	cc := serveWith(t, &service{}, []grpc.ServerOption{
		grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(lim, acme, opts...)),
	}, grpc.WithStatsHandler(&w))
	stream, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	require.NoError(t, err)
	for range messages {
		require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
		if _, err := stream.Recv(); err != nil {
			return w, err
		}
	}
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
	return w, nil
}

// Headers do not grow with the messages of a stream, in either mode.
func TestTenThousandMessages(t *testing.T) {
	messages := 10_000
	if testing.Short() {
		messages = 2000
	}
	for name, opts := range map[string][]grpclimit.Option{"at open": nil, "per message": {grpclimit.WithPerMessage()}} {
		t.Run(name, func(t *testing.T) {
			lim := limiter(t, quota.Limit{Capacity: 1_000_000})
			one, err := streamed(t, lim, 1, opts...)
			require.NoError(t, err)
			many, err := streamed(t, lim, messages, opts...)
			require.NoError(t, err)
			require.Equal(t, 1, many.headers)
			require.InDelta(t, one.header, many.header, 8, "but for the digits of what remains, and the port")
			require.Equal(t, one.trailer, many.trailer)
			want := 2
			if opts != nil {
				want = messages + 1
			}
			require.EqualValues(t, want, lim.Stats().Allowed())
		})
	}
}

func TestHP13_StreamIsChargedAtOpen(t *testing.T) {
	lim := limiter(t, quota.Limit{Capacity: 1})
	cc := serve(t, &service{}, lim, acme)
	stream, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
		_, err = stream.Recv()
		require.NoError(t, err)
	}
	header, err := stream.Header()
	require.NoError(t, err)
	require.Equal(t, []string{`"default";r=0`}, header.Get("ratelimit"))
	require.EqualValues(t, 1, lim.Stats().Allowed())

	second, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = second.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, failure := details(t, err)
	require.NotNil(t, failure)
}

// Of 1,000 messages and a limit of 10, 10 pass. The service takes the refusal for a good end, and still the client is told.
func TestHP13_StreamIsChargedPerMessage(t *testing.T) {
	srv := &service{}
	var seen []grpclimit.Event
	cc := serve(t, srv, limiter(t, quota.PerMinute(1, 10)), acme, grpclimit.WithPerMessage(),
		grpclimit.WithObserver(func(_ context.Context, e grpclimit.Event) { seen = append(seen, e) }))
	stream, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	require.NoError(t, err)
	sent := make(chan error, 1)
	go func() {
		for range 1000 {
			if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
				break // the stream ended: Recv has the reason
			}
		}
		sent <- stream.CloseSend()
	}()
	passed := 0
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
		passed++
	}
	require.Equal(t, 10, passed)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	retry, failure := details(t, err)
	require.Positive(t, retry.GetRetryDelay().AsDuration())
	require.NotNil(t, failure)
	header, err := stream.Header()
	require.NoError(t, err)
	require.Regexp(t, `^"default";r=9;`, header.Get("ratelimit")[0], "of the first message")
	require.Regexp(t, `^"default";r=0;`, stream.Trailer().Get("ratelimit")[0], "of the one that was refused")
	require.NotEmpty(t, stream.Trailer().Get("retry-after"))
	require.NoError(t, <-sent)
	require.Len(t, seen, 11, "the first refusal is the last charge")
}

// A refusal of the first message is in the header, and a handler that goes on receiving gets the refusal again, uncharged.
func TestHP13_FirstMessageRefused(t *testing.T) {
	lim := limiter(t, quota.Limit{})
	srv := &service{full: func(s pb.TestService_FullDuplexCallServer) error {
		for range 3 {
			_, err := s.Recv()
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
		}
		return nil
	}}
	cc := serve(t, srv, lim, acme, grpclimit.WithPerMessage())
	stream, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
	_, err = stream.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	header, err := stream.Header()
	require.NoError(t, err)
	require.Equal(t, []string{`"default";r=0`}, header.Get("ratelimit"))
	require.EqualValues(t, 1, lim.Stats().Refused())
	require.EqualValues(t, 1, srv.calls.Load(), "the opening is free")
}

// A server that speaks first has sent its header before there is a decision; that is no reason to fail.
func TestServerSpeaksFirst(t *testing.T) {
	srv := &service{full: func(s pb.TestService_FullDuplexCallServer) error {
		require.NoError(t, s.Send(&pb.StreamingOutputCallResponse{}))
		_, err := s.Recv()
		return err
	}}
	cc := serve(t, srv, limiter(t, quota.Limit{Capacity: 1}), acme, grpclimit.WithPerMessage())
	stream, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
}

func TestStreamCost(t *testing.T) {
	lim := limiter(t, quota.Limit{Capacity: 10}, func(c *leaselimit.Config) { c.Exact = true })
	cost := grpclimit.WithCost(func(_ string, req any) int64 {
		if req == nil {
			return 4 // an opening
		}
		return int64(len(req.(*pb.StreamingOutputCallRequest).GetPayload().GetBody()))
	})
	_, err := streamed(t, lim, 1, cost)
	require.NoError(t, err)
	cc := serve(t, &service{}, lim, acme, cost, grpclimit.WithPerMessage())
	stream, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	require.NoError(t, err)
	for _, size := range []int{2, 4} {
		require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, size)}}))
		_, err = stream.Recv()
		require.NoError(t, err)
	}
	require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 1)}}))
	_, err = stream.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}
