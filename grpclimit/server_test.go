package grpclimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/grpclimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// HP6, and the metadata of every answer.
func TestHP6_Remaining(t *testing.T) {
	srv := &service{}
	cc := serve(t, srv, limiter(t, quota.PerMinute(1, 3)), acme)
	for _, left := range []string{"2;t=120", "1;t=60", "0;t=60"} {
		header, err := call(t, cc)
		require.NoError(t, err)
		require.Equal(t, []string{`"default";q=3;w=180`}, header.Get("ratelimit-policy"))
		require.Equal(t, []string{`"default";r=` + left}, header.Get("ratelimit"))
		require.Empty(t, header.Get("retry-after"), "HP5: no wait where none is needed")
	}
	header, err := call(t, cc)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Regexp(t, `^[1-9]\d?$`, header.Get("retry-after")[0], "HP2: digits alone")
	require.Equal(t, []string{`"default";r=0;t=` + header.Get("retry-after")[0]}, header.Get("ratelimit"))
	require.EqualValues(t, 3, srv.calls.Load(), "a refused call does not reach the handler")
}

func TestHP10_RetryInfo(t *testing.T) {
	cc := serve(t, &service{}, limiter(t, quota.PerMinute(1, 1)), acme)
	_, err := call(t, cc)
	require.NoError(t, err)
	header, err := call(t, cc)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	retry, failure := details(t, err)
	wait := retry.GetRetryDelay().AsDuration()
	require.Positive(t, wait)
	require.LessOrEqual(t, wait, time.Minute)
	seconds, err := strconv.Atoi(header.Get("retry-after")[0])
	require.NoError(t, err)
	require.Equal(t, int((wait+time.Second-1)/time.Second), seconds, "the same wait, in whole seconds")
	require.Len(t, failure.GetViolations(), 1)
	v := failure.GetViolations()[0]
	require.Equal(t, []any{"tenant:acme", "default", int64(1), "limit of class default: 1 at 1/1m0s"},
		[]any{v.GetSubject(), v.GetQuotaId(), v.GetQuotaValue(), v.GetDescription()})
}

// A tenant or a class of any bytes takes nothing from what the client is told, and adds no field.
func TestHP10_AnyBytes(t *testing.T) {
	for _, text := range []string{"\xff\xfe", "a\r\nevil: 1", "ключ", "a\"b\\", "\x00"} {
		cc := serve(t, &service{}, allower(func() leaselimit.Decision {
			return leaselimit.Decision{Class: text, Limit: quota.PerMinute(1, 1), RetryAfter: time.Second}
		}), func(context.Context, string) (string, error) { return text, nil })
		header, err := call(t, cc)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		retry, failure := details(t, err)
		require.Equal(t, time.Second, retry.GetRetryDelay().AsDuration(), "%q", text)
		require.Equal(t, "tenant:"+strings.ToValidUTF8(text, "\uFFFD"), failure.GetViolations()[0].GetSubject())
		require.Equal(t, []string{"1"}, header.Get("retry-after"))
		require.Regexp(t, `^"([ -!#-\[\]-~]|\\["\\])+";r=0;t=1$`, header.Get("ratelimit")[0])
		require.Empty(t, header.Get("evil"))
	}
}

// A cost above the capacity is refused for ever, and so is every call of a blocked tenant (AV8, AV17).
func TestHP10_NeverHasNoRetryInfo(t *testing.T) {
	for name, limit := range map[string]quota.Limit{"dear": quota.PerSecond(5, 5), "blocked": {}} {
		t.Run(name, func(t *testing.T) {
			lim := limiter(t, limit)
			cc := serve(t, &service{}, lim, acme, grpclimit.WithCost(func(string, any) int64 { return 6 }))
			header, err := call(t, cc)
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			require.ErrorContains(t, err, "can never pass")
			retry, failure := details(t, err)
			require.Nil(t, retry)
			require.NotNil(t, failure)
			require.Empty(t, header.Get("retry-after"))
			d, err := lim.Peek(t.Context(), "acme")
			require.NoError(t, err)
			require.Equal(t, limit.Capacity > 0, d.Allowed, "nothing is spent")
		})
	}
}

// A client that waits as RetryInfo says is admitted (HP1). The bubble has no sockets, so the interceptor is called as a server
// calls it.
func TestHP1_WaitIsEnough(t *testing.T) {
	for _, refill := range []int64{1, 5, 7, 1000} {
		synctest.Test(t, func(t *testing.T) {
			lim := limiter(t, quota.PerSecond(refill, 1))
			limit := grpclimit.UnaryServerInterceptor(lim, acme, grpclimit.WithoutMetadata())
			call := func() error {
				_, err := limit(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: emptyCall},
					func(context.Context, any) (any, error) { return nil, nil })
				return err
			}
			require.NoError(t, call())
			for range 20 {
				wait, ok := grpclimit.RetryDelay(call())
				require.True(t, ok)
				require.Positive(t, wait)
				time.Sleep(wait)
				require.NoError(t, call())
			}
		})
	}
}

// allower decides as a test wants it.
type allower func() leaselimit.Decision

func (a allower) AllowN(context.Context, string, int64) (leaselimit.Decision, error) { return a(), nil }

// away is a store that nobody can reach.
type away struct{ lease.Store }

func (away) Acquire(context.Context, lease.AcquireRequest) (lease.Grant, error) {
	return lease.Grant{}, errors.New("connection refused")
}

func TestHP11_StoreAway(t *testing.T) {
	for _, tt := range []struct {
		policy leaselimit.FailurePolicy
		want   []codes.Code // of one call after the other
		wait   string
	}{
		{leaselimit.FailClosed, []codes.Code{codes.Unavailable, codes.Unavailable}, "1"},
		{leaselimit.FailOpen, []codes.Code{codes.OK, codes.OK}, ""},
		{leaselimit.FailLocal, []codes.Code{codes.OK, codes.ResourceExhausted}, "60"}, // this replica's share is a limit
	} {
		t.Run(tt.policy.String(), func(t *testing.T) {
			var seen []grpclimit.Event
			lim := limiterOver(t, away{membucket.New()}, quota.PerMinute(4, 4), func(c *leaselimit.Config) { c.OnFailure = tt.policy })
			cc := serve(t, &service{}, lim, acme,
				grpclimit.WithObserver(func(_ context.Context, e grpclimit.Event) { seen = append(seen, e) }))
			for i, want := range tt.want {
				header, err := call(t, cc)
				require.Equal(t, want, status.Code(err))
				require.Len(t, seen, i+1)
				require.True(t, seen[i].Decision.Degraded(), "logs are told")
				require.Empty(t, header.Get("ratelimit"), "HP22: nobody knows what remains")
				require.Empty(t, header.Get("ratelimit-policy"))
				if err != nil {
					retry, failure := details(t, err)
					require.Positive(t, retry.GetRetryDelay().AsDuration())
					require.Equal(t, want == codes.ResourceExhausted, failure != nil, "a fault says nothing about the limit")
					require.Equal(t, []string{tt.wait}, header.Get("retry-after"))
				}
			}
		})
	}
}

func TestHP14_HealthAndReflectionAreExempt(t *testing.T) {
	lim := limiter(t, quota.PerMinute(1, 1))
	nobody := func(context.Context, string) (string, error) { return "", nil }
	for name, tenant := range map[string]func(context.Context, string) (string, error){"drained": acme, "nobody": nobody} {
		t.Run(name, func(t *testing.T) {
			cc := serve(t, &service{}, lim, tenant)
			for range 3 {
				_, err := call(t, cc)
				if name == "nobody" {
					require.Equal(t, codes.Unauthenticated, status.Code(err))
				}
			}
			charged := lim.Stats().Allowed() + lim.Stats().Refused()
			client := grpc_health_v1.NewHealthClient(cc)
			for range 10 {
				answer, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
				require.NoError(t, err)
				require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
			}
			watch, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			require.NoError(t, err)
			_, err = watch.Recv()
			require.NoError(t, err)
			reflect, err := grpc_reflection_v1.NewServerReflectionClient(cc).ServerReflectionInfo(t.Context())
			require.NoError(t, err)
			require.NoError(t, reflect.Send(&grpc_reflection_v1.ServerReflectionRequest{
				MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
			}))
			_, err = reflect.Recv()
			require.NoError(t, err)
			require.Equal(t, charged, lim.Stats().Allowed()+lim.Stats().Refused(), "nothing is charged")
		})
	}
	t.Run("unless told", func(t *testing.T) {
		cc := serve(t, &service{}, lim, acme, grpclimit.WithExempt(nil))
		_, err := grpc_health_v1.NewHealthClient(cc).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
	})
	t.Run("others", func(t *testing.T) {
		cc := serve(t, &service{}, lim, acme, grpclimit.WithExempt(func(m string) bool { return m == emptyCall }))
		header, err := call(t, cc)
		require.NoError(t, err)
		require.Empty(t, header.Get("ratelimit-policy"))
		_, err = grpc_health_v1.NewHealthClient(cc).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err, "beside health checks")
	})
}

// What nothing was decided on, and who is told what (AV12).
func TestAV12_Undecided(t *testing.T) {
	closed := limiter(t, quota.PerSecond(1, 1))
	require.NoError(t, closed.Close(t.Context()))
	ok := limiter(t, quota.Unlimited)
	secret := errors.New("password of the database is hunter2")
	fails := func(err error) func(context.Context, string) (string, error) {
		return func(context.Context, string) (string, error) { return "acme", err }
	}
	free := grpclimit.WithCost(func(string, any) int64 { return 0 })
	without := func(err error) *leaselimit.Limiter {
		lim, e := leaselimit.New(membucket.New(), leaselimit.Config{
			Limits: quota.SourceFunc(func(context.Context, string) (quota.Limit, error) { return quota.Limit{}, err }),
		})
		require.NoError(t, e)
		t.Cleanup(func() { require.NoError(t, lim.Close(context.Background())) })
		return lim
	}

	for _, tt := range []struct {
		name   string
		lim    grpclimit.Allower
		tenant func(context.Context, string) (string, error)
		opts   []grpclimit.Option
		want   codes.Code
		cause  error
	}{
		{"no tenant", ok, func(context.Context, string) (string, error) { return "", nil }, nil, codes.Unauthenticated, grpclimit.ErrNoTenant},
		{"tenant fails", ok, fails(secret), nil, codes.Unauthenticated, secret},
		{"tenant answers", ok, fails(status.Error(codes.PermissionDenied, "no")), nil, codes.PermissionDenied, nil},
		{"tenant fails with OK", ok, fails(fine{}), nil, codes.Unauthenticated, fine{}},
		{
			"tenant answers at length", ok, fails(fmt.Errorf("hunter2: %w", status.Error(codes.PermissionDenied, "no"))),
			nil, codes.PermissionDenied, nil,
		},
		{"closed", closed, acme, nil, codes.Unavailable, leaselimit.ErrClosed},
		{"no limit", without(secret), acme, nil, codes.Unavailable, secret},
		{"no such tenant", without(quota.ErrUnknownTenant), acme, nil, codes.PermissionDenied, quota.ErrUnknownTenant},
		{"AV1: cost", ok, acme, []grpclimit.Option{free}, codes.Internal, leaselimit.ErrInvalidCost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var seen []grpclimit.Event
			srv := &service{}
			opts := append(tt.opts, grpclimit.WithObserver(func(_ context.Context, e grpclimit.Event) { seen = append(seen, e) }))
			cc := serve(t, srv, tt.lim, tt.tenant, opts...)
			header, err := call(t, cc)
			require.Equal(t, tt.want, status.Code(err))
			require.NotContains(t, err.Error(), "hunter2", "clients are not told")
			require.Empty(t, header.Get("ratelimit-policy"))
			if tt.cause != nil {
				require.Len(t, seen, 1)
				require.ErrorIs(t, seen[0].Err, tt.cause)
				require.Equal(t, tt.want == codes.Unauthenticated, errors.Is(seen[0].Err, grpclimit.ErrNoTenant))
			}
			stream, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
			require.NoError(t, err)
			_, err = stream.Recv()
			require.Equal(t, tt.want, status.Code(err), "streams alike")
			require.Zero(t, srv.calls.Load())
		})
	}
}

// fine is an error whose status is OK.
type fine struct{}

func (fine) Error() string              { return "fine" }
func (fine) GRPCStatus() *status.Status { return nil }

// What clients are not told is in the log: errors once a second.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		to := grpclimit.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		run := func(lim grpclimit.Allower, tenant string) {
			limit := grpclimit.UnaryServerInterceptor(lim, func(context.Context, string) (string, error) { return tenant, nil }, to)
			for range 15 {
				_, _ = limit(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: emptyCall},
					func(context.Context, any) (any, error) { return nil, nil })
				time.Sleep(100 * time.Millisecond)
			}
		}
		closed := limiter(t, quota.PerSecond(1, 1))
		require.NoError(t, closed.Close(t.Context()))
		run(closed, "acme")
		require.Equal(t, 2, strings.Count(log.String(), `level=WARN msg="grpclimit: no decision"`), "%s", &log)
		log.Reset()
		run(closed, "")
		require.Equal(t, 15, strings.Count(log.String(), `level=DEBUG msg="grpclimit: no tenant"`), "%s", &log)
		log.Reset()
		run(allower(func() leaselimit.Decision { return leaselimit.Decision{Allowed: true, Class: "c"} }), "acme")
		require.Empty(t, log.String())
		run(allower(func() leaselimit.Decision { return leaselimit.Decision{Allowed: true, Shadowed: true, Class: "c"} }), "acme")
		require.Equal(t, 15, strings.Count(log.String(), "tenant=acme class=c allowed=true degraded=false shadowed=true"), "%s", &log)
	})
}

func TestNilArguments(t *testing.T) {
	require.PanicsWithValue(t, "grpclimit: lim is nil", func() { grpclimit.UnaryServerInterceptor(nil, acme) })
	require.PanicsWithValue(t, "grpclimit: tenant is nil", func() {
		grpclimit.StreamServerInterceptor(limiter(t, quota.Unlimited), nil)
	})
}

func TestErrorStatus(t *testing.T) {
	closed := limiter(t, quota.PerSecond(1, 1))
	require.NoError(t, closed.Close(t.Context()))
	nobody := func(context.Context, string) (string, error) { return "", nil }
	for name, tenant := range map[string]func(context.Context, string) (string, error){"closed": acme, "nobody": nobody} {
		for _, answer := range []*status.Status{nil, status.New(codes.OK, ""), status.New(codes.Aborted, "")} {
			t.Run(name+" "+answer.Code().String(), func(t *testing.T) {
				cc := serve(t, &service{}, closed, tenant, grpclimit.WithError(func(err error) *status.Status {
					require.True(t, errors.Is(err, leaselimit.ErrClosed) || errors.Is(err, grpclimit.ErrNoTenant))
					return answer
				}))
				_, err := call(t, cc)
				require.Equal(t, answer.Code(), status.Code(err))
				stream, err := pb.NewTestServiceClient(cc).FullDuplexCall(t.Context())
				require.NoError(t, err)
				require.NoError(t, stream.CloseSend())
				_, err = stream.Recv()
				if answer.Code() == codes.OK {
					require.EqualError(t, err, "EOF")
				} else {
					require.Equal(t, answer.Code(), status.Code(err))
				}
			})
		}
	}
}

// A call that is over is answered as one, whoever notices.
func TestCallIsOver(t *testing.T) {
	end := make(chan struct{})
	lim := limiterOver(t, hangs{membucket.New(), end}, quota.PerSecond(1, 1))
	t.Cleanup(func() { close(end) })
	limit := grpclimit.UnaryServerInterceptor(lim, acme, grpclimit.WithError(func(error) *status.Status { return nil }))
	run := func(ctx context.Context) error {
		_, err := limit(ctx, nil, &grpc.UnaryServerInfo{FullMethod: emptyCall}, func(context.Context, any) (any, error) {
			require.Fail(t, "the handler runs")
			return nil, nil
		})
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, codes.Canceled, status.Code(run(ctx)))
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Equal(t, codes.DeadlineExceeded, status.Code(run(ctx)))
}

// hangs is a store that does not answer before the end.
type hangs struct {
	lease.Store

	end chan struct{}
}

func (h hangs) Acquire(context.Context, lease.AcquireRequest) (lease.Grant, error) {
	<-h.end
	return lease.Grant{}, errors.New("the end")
}

func TestShadow(t *testing.T) {
	var seen []leaselimit.Decision
	srv := &service{}
	cc := serve(t, srv, limiter(t, quota.PerMinute(1, 1), func(c *leaselimit.Config) { c.Shadow = true }), acme,
		grpclimit.WithObserver(func(_ context.Context, e grpclimit.Event) {
			require.Equal(t, emptyCall, e.FullMethod)
			require.Equal(t, "acme", e.Tenant)
			seen = append(seen, e.Decision)
		}))
	for range 2 {
		header, err := call(t, cc)
		require.NoError(t, err)
		require.Empty(t, header.Get("retry-after"))
	}
	require.EqualValues(t, 2, srv.calls.Load())
	require.Len(t, seen, 2)
	require.Equal(t, []bool{false, true}, []bool{seen[0].Shadowed, seen[1].Shadowed})
}

func TestMetadata(t *testing.T) {
	t.Run("off", func(t *testing.T) {
		cc := serve(t, &service{}, limiter(t, quota.PerMinute(1, 1)), acme, grpclimit.WithoutMetadata())
		for range 2 {
			header, err := call(t, cc)
			require.Equal(t, 0, header.Len()-header.Copy().Len())
			for _, name := range []string{"ratelimit-policy", "ratelimit", "retry-after"} {
				require.Empty(t, header.Get(name))
			}
			if err != nil {
				retry, _ := details(t, err)
				require.NotNil(t, retry, "the details remain")
			}
		}
	})
	t.Run("unlimited", func(t *testing.T) {
		header, err := call(t, serve(t, &service{}, limiter(t, quota.Unlimited), acme))
		require.NoError(t, err)
		require.Empty(t, header.Get("ratelimit-policy"))
	})
	t.Run("each tenant's own", func(t *testing.T) {
		capacity := int64(0)
		cc := serve(t, &service{}, allower(func() leaselimit.Decision {
			capacity++
			return leaselimit.Decision{Allowed: true, Class: fmt.Sprint("c", capacity/3), Limit: quota.Limit{Capacity: (capacity + 1) / 2}}
		}), acme)
		for _, want := range []string{`"c0";q=1`, `"c0";q=1`, `"c1";q=2`, `"c1";q=2`, `"c1";q=3`, `"c2";q=3`} {
			header, err := call(t, cc)
			require.NoError(t, err)
			require.Equal(t, []string{want}, header.Get("ratelimit-policy"))
		}
	})
	t.Run("stacked", func(t *testing.T) {
		class := func(name string) func(*leaselimit.Config) { return func(c *leaselimit.Config) { c.Class = name } }
		store := membucket.New()
		cc := serveWith(t, &service{}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(
			grpclimit.UnaryServerInterceptor(limiterOver(t, store, quota.PerMinute(2, 2), class("burst")), acme),
			grpclimit.UnaryServerInterceptor(limiterOver(t, store, quota.Limit{Capacity: 1}, class("total")), acme),
			func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				require.NoError(t, grpc.SetHeader(ctx, metadata.Pairs("own", "stays")))
				return handler(ctx, req)
			},
		)})
		header, err := call(t, cc)
		require.NoError(t, err)
		require.Equal(t, []string{`"burst";q=2;w=60`, `"total";q=1`}, header.Get("ratelimit-policy"))
		require.Len(t, header.Get("ratelimit"), 2)
		require.Equal(t, []string{"stays"}, header.Get("own"))
		header, err = call(t, cc)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Len(t, header.Get("ratelimit"), 2)
		_, failure := details(t, err)
		require.Equal(t, "total", failure.GetViolations()[0].GetQuotaId())
	})
}

func TestCost(t *testing.T) {
	cc := serve(t, &service{}, limiter(t, quota.Limit{Capacity: 10}), acme,
		grpclimit.WithCost(func(fullMethod string, req any) int64 {
			if r, ok := req.(*pb.SimpleRequest); ok && fullMethod == unaryCall {
				return int64(r.GetResponseSize())
			}
			return 1
		}))
	var header metadata.MD
	_, err := pb.NewTestServiceClient(cc).UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 7}, grpc.Header(&header))
	require.NoError(t, err)
	require.Equal(t, []string{`"default";r=3`}, header.Get("ratelimit"))
	header, err = call(t, cc)
	require.NoError(t, err)
	require.Equal(t, []string{`"default";r=2`}, header.Get("ratelimit"))
}
