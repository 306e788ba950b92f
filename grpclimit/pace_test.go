package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/grpclimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// refusals counts what a server refuses.
type refusals struct{ n atomic.Int64 }

func (r *refusals) observe(_ context.Context, e grpclimit.Event) {
	if e.Err == nil && !e.Decision.Allowed {
		r.n.Add(1)
	}
}

// limitedBy is a server whose calls and streams lim limits, and a client of it with the given options.
func limitedBy(t *testing.T, lim grpclimit.Allower, opts ...grpclimit.ClientOption) (client pb.TestServiceClient, refused *refusals) {
	t.Helper()
	refused = new(refusals)
	see := grpclimit.WithObserver(refused.observe)
	return pb.NewTestServiceClient(serveWith(t, &service{},
		[]grpc.ServerOption{
			grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(lim, acme, see)),
			grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(lim, acme, see)),
		},
		grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(opts...)),
		grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(opts...)),
	)), refused
}

// openAndEnd opens a stream and waits for its end.
func openAndEnd(ctx context.Context, client pb.TestServiceClient) error {
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
}

func exact(c *leaselimit.Config) { c.Exact = true }

// burst is the limit of a server: 40 at once and 20 a second.
var burst = quota.PerSecond(20, 40)

// One caller that never pauses.
func TestPacingAvoidsRefusals(t *testing.T) {
	const calls = 70
	for name, call := range map[string]func(context.Context, pb.TestServiceClient) error{
		"unary": func(ctx context.Context, client pb.TestServiceClient) error {
			var header metadata.MD // the caller's own
			_, err := client.EmptyCall(ctx, &pb.Empty{}, grpc.Header(&header))
			require.NotEmpty(t, header.Get("ratelimit"))
			return err
		},
		"streams": openAndEnd,
	} {
		t.Run(name, func(t *testing.T) {
			run := func(opts ...grpclimit.ClientOption) (admitted int, refused int64) {
				client, counter := limitedBy(t, limiter(t, burst, exact), opts...)
				for range calls {
					if err := call(t.Context(), client); err == nil {
						admitted++
					} else {
						require.Equal(t, codes.ResourceExhausted, status.Code(err))
					}
				}
				return admitted, counter.n.Load()
			}
			admitted, refused := run()
			t.Logf("without pacing: %d admitted, %d refused", admitted, refused)
			require.EqualValues(t, calls-admitted, refused)
			admitted, refused = run(grpclimit.WithPacing())
			t.Logf("with pacing: %d admitted, %d refused", admitted, refused)
			require.Equal(t, calls, admitted)
			require.Zero(t, refused)
		})
	}
}

// Many callers that never pause, half of whose calls are unary and half of them streams. No more of them than half of the capacity are
// under way at once, so that those find tokens which left before there was an answer.
func TestPacingOfManyCallers(t *testing.T) {
	const callers, each = 20, 5
	run := func(opts ...grpclimit.ClientOption) (admitted, refused int64) {
		client, counter := limitedBy(t, limiter(t, burst, exact), opts...)
		var (
			all sync.WaitGroup
			ok  atomic.Int64
		)
		for i := range callers {
			all.Go(func() {
				for j := range each {
					var err error
					if (i+j)%2 == 0 {
						_, err = client.EmptyCall(t.Context(), &pb.Empty{})
					} else {
						err = openAndEnd(t.Context(), client)
					}
					if err == nil {
						ok.Add(1)
					} else {
						assert.Equal(t, codes.ResourceExhausted, status.Code(err))
					}
				}
			})
		}
		all.Wait()
		return ok.Load(), counter.n.Load()
	}
	admitted, refused := run()
	t.Logf("without pacing: %d admitted, %d refused", admitted, refused)
	admitted, refused = run(grpclimit.WithRetryAll())
	t.Logf("with retries of unary calls alone: %d admitted, %d refused", admitted, refused)
	admitted, refused = run(grpclimit.WithPacing(), grpclimit.WithRetryAll())
	t.Logf("with pacing: %d admitted, %d refused", admitted, refused)
	require.EqualValues(t, callers*each, admitted)
	require.Zero(t, refused)
}

const duplexCall = "/grpc.testing.TestService/FullDuplexCall"

// told is a server that answers with metadata and errors as a test wants it, in a bubble, where no socket may be waited for.
type told struct {
	calls           int
	header, trailer metadata.MD
	err             error
	took            time.Duration
}

func fields(limit, policy string) metadata.MD {
	return metadata.Pairs("ratelimit", limit, "ratelimit-policy", policy)
}

func (s *told) invoke(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
	s.calls++
	time.Sleep(s.took)
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			*opt.HeaderAddr = s.header
		case grpc.TrailerCallOption:
			*opt.TrailerAddr = s.trailer
		}
	}
	return s.err
}

// open opens a stream whose only message is its end.
func (s *told) open(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	s.calls++
	return ended{s}, nil
}

type ended struct{ *told }

func (e ended) Header() (metadata.MD, error) { return e.header, nil }
func (e ended) Trailer() metadata.MD         { return e.trailer }
func (e ended) CloseSend() error             { return nil }
func (e ended) Context() context.Context     { return context.Background() }
func (e ended) SendMsg(any) error            { return nil }
func (e ended) RecvMsg(any) error {
	if e.err == nil {
		return io.EOF
	}
	return e.err
}

// pacer is a client with pacing in a bubble.
type pacer struct {
	unary  grpc.UnaryClientInterceptor
	stream grpc.StreamClientInterceptor
}

func newPacer(opts ...grpclimit.ClientOption) pacer {
	opts = append(opts, grpclimit.WithPacing())
	return pacer{grpclimit.UnaryClientInterceptor(opts...), grpclimit.StreamClientInterceptor(opts...)}
}

// call makes a unary call and says how long it took.
func (p pacer) call(ctx context.Context, s *told, method string, cc *grpc.ClientConn) (time.Duration, error) {
	start := time.Now()
	err := p.unary(ctx, method, nil, nil, cc, s.invoke)
	return time.Since(start), err
}

// open opens a stream, says how long that took, and reads it to its end.
func (p pacer) open(t *testing.T, s *told) time.Duration {
	t.Helper()
	start := time.Now()
	stream, err := p.stream(t.Context(), nil, nil, duplexCall, s.open)
	require.NoError(t, err)
	took := time.Since(start)
	_ = stream.RecvMsg(nil)
	return took
}

// jittered is whether a call was held 10 to 25 % longer than want.
func jittered(t *testing.T, want, held time.Duration) {
	t.Helper()
	assert.GreaterOrEqual(t, held, want*110/100)
	assert.LessOrEqual(t, held, want*125/100)
}

func TestPacingFromMetadata(t *testing.T) {
	second := status.New(codes.ResourceExhausted, "")
	detailed, err := second.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(50 * time.Millisecond)})
	require.NoError(t, err)
	low := fields(`"a";r=5;t=10`, `"a";q=10;w=20`)
	for name, tt := range map[string]struct {
		server told
		want   time.Duration // that the next call is held
		stream time.Duration // that the next stream is held, if that is not the same
	}{
		"nothing told":    {told{}, 0, 0},
		"plenty":          {told{header: fields(`"a";r=6;t=12`, `"a";q=10;w=20`)}, 0, 0},
		"malformed":       {told{header: fields(`"a";r=0;t=`, ``)}, 0, 0},
		"low":             {told{header: low}, 2 * time.Second, 0},
		"without headers": {told{trailer: low, err: second.Err()}, 2 * time.Second, 0}, // such an answer has a trailer alone
		// A stream's trailer is of a message that came after what its header is of.
		"both": {told{header: low, trailer: fields(`"a";r=0;t=20`, ``)}, 2 * time.Second, 20 * time.Second},
		"stacked": {told{header: metadata.MD{
			"ratelimit":        {`"a";r=5;t=10`, `"b";r=1;t=30`, `"c";r=90;t=900`},
			"ratelimit-policy": {`"a";q=10;w=20`, `"b";q=2;w=60`, `"c";q=100;w=1000`},
		}}, 30 * time.Second, 0},
		"refused":              {told{header: fields(`"a";r=0;t=4`, `"a";q=10;w=40`), err: second.Err()}, 4 * time.Second, 0},
		"refused to the point": {told{header: fields(`"a";r=0;t=1`, `"a";q=40;w=2`), err: detailed.Err()}, 50 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPacer(grpclimit.WithMaxWait(time.Minute))
				for range 2 {
					held, err := p.call(t.Context(), &tt.server, emptyCall, nil)
					require.Equal(t, status.Code(tt.server.err), status.Code(err))
					require.Zero(t, held)
					if tt.want > 0 {
						break
					}
				}
				if tt.want > 0 {
					held, _ := p.call(t.Context(), &tt.server, emptyCall, nil)
					jittered(t, tt.want, held)
				}
			})
			if tt.stream > 0 {
				tt.want = tt.stream
			}
			synctest.Test(t, func(t *testing.T) {
				p := newPacer(grpclimit.WithMaxWait(time.Minute))
				require.Zero(t, p.open(t, &tt.server))
				if held := p.open(t, &tt.server); tt.want > 0 {
					jittered(t, tt.want, held)
				} else {
					require.Zero(t, held)
				}
			})
		})
	}
}

// Methods that count against a limit share its pace, unary or not, and others are not held.
func TestPacingOfMethods(t *testing.T) {
	const health = "/grpc.health.v1.Health/Check"
	synctest.Test(t, func(t *testing.T) {
		p := newPacer()
		plenty := told{header: fields(`"a";r=9;t=90`, `"a";q=10;w=100`)}
		low := told{header: fields(`"a";r=5;t=50`, `"a";q=10;w=100`)}
		require.Zero(t, p.open(t, &plenty))
		_, err := p.call(t.Context(), &told{}, health, nil)
		require.NoError(t, err)
		_, err = p.call(t.Context(), &low, emptyCall, nil)
		require.NoError(t, err)

		held, err := p.call(t.Context(), &told{}, health, nil)
		require.NoError(t, err)
		require.Zero(t, held)
		jittered(t, 10*time.Second, p.open(t, &low))
		held, err = p.call(t.Context(), &low, emptyCall, nil)
		require.NoError(t, err)
		jittered(t, 10*time.Second, held)
	})
}

func TestPacingOfTargets(t *testing.T) {
	dial := func(target string) *grpc.ClientConn {
		cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cc.Close()) })
		return cc
	}
	one, pooled, other := dial("passthrough:///one"), dial("passthrough:///one"), dial("passthrough:///other")
	synctest.Test(t, func(t *testing.T) {
		p := newPacer()
		low := told{header: fields(`"a";r=0;t=10`, `"a";q=10;w=100`)}
		_, err := p.call(t.Context(), &low, emptyCall, one)
		require.NoError(t, err)
		held, err := p.call(t.Context(), &low, emptyCall, other)
		require.NoError(t, err)
		require.Zero(t, held)
		held, err = p.call(t.Context(), &low, emptyCall, pooled)
		require.NoError(t, err)
		jittered(t, 10*time.Second, held)
	})
}

func TestPacingIsBounded(t *testing.T) {
	low := fields(`"a";r=0;t=10`, `"a";q=10;w=100`)
	for name, tt := range map[string]struct {
		deadline time.Duration // of the second call
		cancel   time.Duration
		opts     []grpclimit.ClientOption
		held     time.Duration // 0: not held, -1: as the metadata say
		want     codes.Code
	}{
		"held":                {held: -1},
		"cancelled":           {cancel: time.Second, held: time.Second, want: codes.Canceled},
		"too soon a deadline": {deadline: 10 * time.Second},
		"too short a wait":    {opts: []grpclimit.ClientOption{grpclimit.WithMaxWait(10 * time.Second)}},
		"later deadline":      {deadline: 13 * time.Second, held: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPacer(tt.opts...)
				server := &told{header: low}
				for _, open := range []bool{false, true} {
					method := emptyCall
					run := func(ctx context.Context) (time.Duration, error) { return p.call(ctx, server, method, nil) }
					if open {
						time.Sleep(time.Hour) // all of it is out of date
						method = duplexCall
						run = func(ctx context.Context) (time.Duration, error) {
							start := time.Now()
							stream, err := p.stream(ctx, nil, nil, method, server.open)
							if err == nil {
								_ = stream.RecvMsg(nil)
							}
							return time.Since(start), err
						}
					}
					_, err := run(t.Context())
					require.NoError(t, err)
					calls := server.calls
					ctx, cancel := context.WithCancel(t.Context())
					if tt.deadline > 0 {
						ctx, cancel = context.WithTimeout(t.Context(), tt.deadline)
					}
					if tt.cancel > 0 {
						time.AfterFunc(tt.cancel, cancel)
					}
					held, err := run(ctx)
					cancel()
					require.Equal(t, tt.want, status.Code(err))
					if tt.held < 0 {
						jittered(t, 10*time.Second, held)
					} else {
						require.Equal(t, tt.held, held)
					}
					require.Equal(t, tt.want == codes.OK, server.calls > calls, "a call that was cancelled is not made")
				}
			})
		})
	}
}

// What a call is held counts against its patience as much as what it waits after a refusal.
func TestPacingAndRetriesShareTheWait(t *testing.T) {
	refused, err := status.New(codes.ResourceExhausted, "").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(10 * time.Second)})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(grpclimit.WithRetryMethods(emptyCall), grpclimit.WithMaxWait(21*time.Second), grpclimit.WithMaxAttempts(10))
		server := &told{header: fields(`"a";r=0;t=10`, `"a";q=10;w=100`)}
		_, err := p.call(t.Context(), server, emptyCall, nil)
		require.NoError(t, err)
		server.err = refused.Err()
		took, err := p.call(t.Context(), server, emptyCall, nil)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		jittered(t, 10*time.Second, took)
		require.Equal(t, 2, server.calls, "there was no time for another attempt")

		took, err = p.call(t.Context(), server, unaryCall, nil)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Zero(t, took, "a method that has no answer yet")
		require.Equal(t, 3, server.calls, "and that may not be made again")
	})
}

// Without pacing a stream is the one that gRPC made.
func TestStreamsWithoutPacing(t *testing.T) {
	server := &told{header: fields(`"a";r=0;t=10`, `"a";q=10;w=100`)}
	stream, err := grpclimit.StreamClientInterceptor(grpclimit.WithRetryAll())(t.Context(), nil, nil, duplexCall, server.open)
	require.NoError(t, err)
	require.Equal(t, ended{server}, stream)
	failing := errors.New("no connection")
	_, err = grpclimit.StreamClientInterceptor(grpclimit.WithPacing())(t.Context(), nil, nil, duplexCall,
		func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return nil, failing
		})
	require.ErrorIs(t, err, failing)
}
