package grpclimit_test

import (
	"context"
	"log/slog"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/grpclimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Field reports, by their ids: what others' limiters told clients wrongly. Those whose tests are with what they are about: HP6 and
// HP10 to HP14 are in server_test.go and stream_test.go.

// list parses metadata as the structured field that they mirror, and checks what the draft says of its values.
func list(t *testing.T, header metadata.MD, name string) map[string]map[string]int64 {
	t.Helper()
	parsed, err := httpsfv.UnmarshalList(header.Get(name))
	require.NoError(t, err, "%s: %q", name, header.Get(name))
	items := map[string]map[string]int64{}
	for _, member := range parsed {
		item, ok := member.(httpsfv.Item)
		require.True(t, ok)
		class, ok := item.Value.(string)
		require.True(t, ok, "the name is a string")
		items[class] = map[string]int64{}
		for _, key := range item.Params.Names() {
			value, _ := item.Params.Get(key)
			n, ok := value.(int64)
			require.True(t, ok, "%s is an integer", key)
			require.GreaterOrEqual(t, n, int64(0))
			items[class][key] = n
		}
	}
	return items
}

// header keeps the metadata that an interceptor sets, in a bubble, where no socket may be waited for.
type header struct {
	grpc.ServerTransportStream

	metadata.MD
}

func (h *header) SetHeader(md metadata.MD) error {
	h.MD = metadata.Join(h.MD, md)
	return nil
}

// A client that knows of whole seconds alone is admitted when they have passed, too.
func TestHP1_WholeSecondsAreEnough(t *testing.T) {
	for wait, want := range map[time.Duration]int{200 * time.Millisecond: 1, 1200 * time.Millisecond: 2, 5 * time.Second: 5} {
		synctest.Test(t, func(t *testing.T) {
			limit := grpclimit.UnaryServerInterceptor(limiter(t, quota.Limit{Capacity: 1, Refill: 1, Per: wait}), acme)
			call := func() (metadata.MD, error) {
				var h header
				_, err := limit(grpc.NewContextWithServerTransportStream(t.Context(), &h), nil,
					&grpc.UnaryServerInfo{FullMethod: emptyCall}, func(context.Context, any) (any, error) { return nil, nil })
				return h.MD, err
			}
			_, err := call()
			require.NoError(t, err)
			for range 5 {
				time.Sleep(time.Millisecond) // the limiter's answers are up to 2 us on the safe side
				md, err := call()
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				require.Equal(t, []string{strconv.Itoa(want)}, md.Get("retry-after"))
				require.Equal(t, int64(want), list(t, md, "ratelimit")["default"]["t"])
				time.Sleep(time.Duration(want) * time.Second)
				_, err = call()
				require.NoError(t, err)
			}
		})
	}
}

// Whatever a limiter says, clients get whole seconds from 1 on and a delay above 0, or neither.
func TestHP2_HP10_RetryAfterAndRetryInfo(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		-time.Second: "1", 0: "1", 1: "1", time.Second: "1", time.Second + 1: "2", 90*time.Minute - 1: "5400",
		leaselimit.Never - 1: "9223372037", leaselimit.Never: "",
	} {
		cc := serve(t, &service{}, allower(func() leaselimit.Decision {
			return leaselimit.Decision{Class: "c", Limit: quota.PerSecond(1, 1), RetryAfter: wait}
		}), acme)
		header, err := call(t, cc)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		retry, _ := details(t, err)
		if want == "" {
			require.Empty(t, header.Get("retry-after"))
			require.Nil(t, retry)
			continue
		}
		require.Equal(t, []string{want}, header.Get("retry-after"), "%v", wait)
		require.Equal(t, max(wait, time.Millisecond), retry.GetRetryDelay().AsDuration())
	}
}

func TestHP4_ResetIsNoPointInTime(t *testing.T) {
	cc := serve(t, &service{}, limiter(t, quota.PerMinute(2, 2)), acme)
	for _, want := range []int64{30, 30, 30} {
		header, _ := call(t, cc)
		got := list(t, header, "ratelimit")["default"]["t"]
		require.LessOrEqual(t, got, want)
		require.Positive(t, got)
		require.Equal(t, int64(60), list(t, header, "ratelimit-policy")["default"]["w"])
	}
}

func TestHP5_NoSentinelLeaks(t *testing.T) {
	for _, l := range []quota.Limit{{}, {Capacity: 1}, quota.PerSecond(1, 1), quota.PerMinute(1, 5), quota.Unlimited} {
		cc := serve(t, &service{}, limiter(t, l), acme)
		for range 3 {
			header, err := call(t, cc)
			if err == nil {
				require.Empty(t, header.Get("retry-after"))
			}
			for _, name := range []string{"ratelimit", "ratelimit-policy", "retry-after"} {
				for _, value := range header.Get(name) {
					require.NotContains(t, value, "-")
				}
			}
			if retry, failure := details(t, err); err != nil {
				require.True(t, retry == nil || retry.GetRetryDelay().AsDuration() > 0)
				require.GreaterOrEqual(t, failure.GetViolations()[0].GetQuotaValue(), int64(0))
			}
		}
	}
}

func TestHP8_AV8_CostAboveTheCapacity(t *testing.T) {
	for _, cost := range []int64{6, 10, 1 << 62} {
		lim := limiter(t, quota.PerSecond(1, 5))
		header, err := call(t, serve(t, &service{}, lim, acme, grpclimit.WithCost(func(string, any) int64 { return cost })))
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		retry, _ := details(t, err)
		require.Nil(t, retry)
		require.Empty(t, header.Get("retry-after"))
		got := list(t, header, "ratelimit")["default"]
		require.NotContains(t, got, "t")
		require.LessOrEqual(t, got["r"], int64(5))
		d, err := lim.Peek(t.Context(), "acme")
		require.NoError(t, err)
		require.Equal(t, int64(5), d.Remaining, "nothing was spent")
	}
}

func TestHP17_MetadataAreStructuredAsInTheDraft(t *testing.T) {
	cc := serve(t, &service{}, limiter(t, quota.PerMinute(6, 10)), acme)
	header, err := call(t, cc)
	require.NoError(t, err)
	require.Equal(t, map[string]map[string]int64{"default": {"q": 10, "w": 100}}, list(t, header, "ratelimit-policy"))
	require.Equal(t, map[string]map[string]int64{"default": {"r": 9, "t": 90}}, list(t, header, "ratelimit"))
	for _, class := range []string{"", "a-b_c.D", "ключ \"\\\n"} {
		for _, limit := range []quota.Limit{{}, quota.PerSecond(1, quota.MaxTokens), {Capacity: 1, Refill: 1, Per: math.MaxInt64}} {
			cc := serve(t, &service{}, allower(func() leaselimit.Decision {
				return leaselimit.Decision{Allowed: true, Class: class, Limit: limit, Remaining: limit.Capacity}
			}), acme)
			header, err := call(t, cc)
			require.NoError(t, err)
			require.Len(t, list(t, header, "ratelimit-policy"), 1)
			require.Len(t, list(t, header, "ratelimit"), 1)
		}
	}
}

func TestAV1_CostsBelowOneAreFaultsOfTheService(t *testing.T) {
	for _, cost := range []int64{0, -100} {
		lim := limiter(t, quota.Limit{Capacity: 2})
		_, err := call(t, serve(t, &service{}, lim, acme))
		require.NoError(t, err)
		srv := &service{}
		_, err = call(t, serve(t, srv, lim, acme, grpclimit.WithLogger(slog.New(slog.DiscardHandler)),
			grpclimit.WithCost(func(string, any) int64 { return cost })))
		require.Equal(t, codes.Internal, status.Code(err))
		require.Zero(t, srv.calls.Load())
		d, err := lim.Peek(t.Context(), "acme")
		require.NoError(t, err)
		require.Equal(t, int64(1), d.Remaining)
	}
}

// An invalid limit admits nothing, and is no limit that a client exceeds.
func TestAV3_AV4_InvalidLimitsAdmitNothing(t *testing.T) {
	for _, l := range []quota.Limit{{Capacity: 5, Refill: 1}, {Capacity: -1}, {Capacity: 5, Refill: 1, Per: -time.Second}} {
		srv := &service{}
		lim := limiter(t, quota.Limit{}, func(c *leaselimit.Config) {
			c.Limits = quota.SourceFunc(func(context.Context, string) (quota.Limit, error) { return l, nil })
		})
		header, err := call(t, serve(t, srv, lim, acme, grpclimit.WithLogger(slog.New(slog.DiscardHandler))))
		require.Equal(t, codes.Unavailable, status.Code(err))
		retry, failure := details(t, err)
		require.Nil(t, retry)
		require.Nil(t, failure)
		require.Empty(t, header.Get("retry-after"))
		require.Zero(t, srv.calls.Load())
	}
}

// A limiter for each call is wrong, as the documentation says: each asks the store anew. But the limit holds.
func TestAV7_LimiterBuiltInTheInterceptor(t *testing.T) {
	store := membucket.New()
	built := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		lim, err := leaselimit.New(store, leaselimit.Config{
			Limits: quota.Fixed(quota.Limit{Capacity: 20}), StoreTimeout: 10 * time.Second, Exact: true,
		})
		if err != nil {
			return nil, err
		}
		return grpclimit.UnaryServerInterceptor(lim, acme)(ctx, req, info, handler)
	}
	srv := &service{}
	cc := serveWith(t, srv, []grpc.ServerOption{grpc.UnaryInterceptor(built)})
	for range 100 {
		if _, err := call(t, cc); err != nil {
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
		}
	}
	require.LessOrEqual(t, srv.calls.Load(), int64(20))
	require.Positive(t, srv.calls.Load())
	// That no limiter leaves a goroutine is seen at the end of all tests.
}

// counting counts what is asked of a limiter.
type counting struct {
	grpclimit.Allower

	n atomic.Int64
}

func (c *counting) AllowN(ctx context.Context, tenant string, cost int64) (leaselimit.Decision, error) {
	c.n.Add(1)
	return c.Allower.AllowN(ctx, tenant, cost)
}

// Calls without a tenant share no bucket, whatever they say of themselves, unless the service has one for them.
func TestAV12_NoTenant(t *testing.T) {
	lim := &counting{Allower: limiter(t, quota.Limit{Capacity: 1})}
	cc := serve(t, &service{}, lim, func(context.Context, string) (string, error) { return "", nil })
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "acme", "x-tenant", "acme")
	for range 3 {
		_, err := pb.NewTestServiceClient(cc).EmptyCall(ctx, &pb.Empty{})
		require.Equal(t, codes.Unauthenticated, status.Code(err))
	}
	require.Zero(t, lim.n.Load())

	cc = serve(t, &service{}, lim, func(context.Context, string) (string, error) { return "anonymous", nil })
	_, err := call(t, cc)
	require.NoError(t, err)
	_, err = call(t, cc)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func TestAV17_ACapacityOfZeroRefusesAll(t *testing.T) {
	srv := &service{}
	cc := serve(t, srv, limiter(t, quota.Limit{Refill: 10, Per: time.Second}), acme)
	for range 3 {
		header, err := call(t, cc)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Equal(t, map[string]map[string]int64{"default": {"q": 0}}, list(t, header, "ratelimit-policy"))
		require.Empty(t, header.Get("retry-after"))
		retry, _ := details(t, err)
		require.Nil(t, retry)
	}
	require.Zero(t, srv.calls.Load())
}

// With a spread clients that are refused together are told to come back apart, and none of them too early.
func TestWithRetrySpread(t *testing.T) {
	const wait, spread = 1500 * time.Millisecond, 10 * time.Second
	var seen []time.Duration
	cc := serve(t, &service{}, allower(func() leaselimit.Decision {
		return leaselimit.Decision{Class: "c", Limit: quota.PerSecond(1, 1), RetryAfter: wait}
	}), acme, grpclimit.WithRetrySpread(spread), grpclimit.WithObserver(func(_ context.Context, e grpclimit.Event) {
		seen = append(seen, e.Decision.RetryAfter)
	}))
	told := map[time.Duration]bool{}
	for range 100 {
		header, err := call(t, cc)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		retry, _ := details(t, err)
		delay := retry.GetRetryDelay().AsDuration()
		require.GreaterOrEqual(t, delay, wait)
		require.Less(t, delay, wait+spread)
		require.Equal(t, []string{strconv.Itoa(int((delay + time.Second - 1) / time.Second))}, header.Get("retry-after"))
		require.Equal(t, header.Get("retry-after")[0], strconv.FormatInt(list(t, header, "ratelimit")["c"]["t"], 10))
		told[delay] = true
	}
	require.Greater(t, len(told), 90)
	require.Len(t, seen, 100)
	for _, d := range seen {
		require.Equal(t, wait, d, "observers see the decision as it was")
	}
	require.PanicsWithValue(t, "grpclimit: WithRetrySpread is -1ns, must be 0 or more", func() {
		grpclimit.StreamServerInterceptor(limiter(t, quota.Unlimited), acme, grpclimit.WithRetrySpread(-1))
	})
}
