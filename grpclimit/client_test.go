package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refusedFor is what a server answers that wants the client to wait.
func refusedFor(d time.Duration) error {
	return refusal("acme", leaselimit.Decision{RetryAfter: d, Limit: quota.PerSecond(1, 1), Class: "default"})
}

// polite makes a call to a server that answers with the given errors, the last one for ever, and counts its attempts.
func polite(ctx context.Context, answers []error, opts ...ClientOption) (attempts int, err error) {
	err = UnaryClientInterceptor(opts...)(ctx, "/s/m", nil, nil, nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			attempts++
			return answers[min(attempts, len(answers))-1]
		})
	return attempts, err
}

func TestPoliteClient(t *testing.T) {
	second, never := refusedFor(time.Second), refusedFor(leaselimit.Never)
	closed := refusal("acme", leaselimit.Decision{RetryAfter: time.Second, Source: leaselimit.SourceFallback, Policy: leaselimit.FailClosed})
	plain := status.Error(codes.Unavailable, "no RetryInfo")
	retry := WithRetryMethods("/s/other", "/s/m")
	for _, tt := range []struct {
		name     string
		answers  []error
		opts     []ClientOption
		deadline time.Duration
		attempts int
		least    time.Duration // waited
		most     time.Duration
		want     error
	}{
		{"passes", []error{nil}, []ClientOption{retry}, 0, 1, 0, 0, nil},
		{"once refused", []error{second, nil}, []ClientOption{retry}, 0, 2, 1100 * time.Millisecond, 1250 * time.Millisecond, nil},
		{"store away", []error{closed, nil}, []ClientOption{WithRetryAll()}, 0, 2, 1100 * time.Millisecond, 1250 * time.Millisecond, nil},
		{"wrapped", []error{fmt.Errorf("call: %w", second), nil}, []ClientOption{retry}, 0, 2, 1100 * time.Millisecond, 1250 * time.Millisecond, nil},
		{"not told", []error{second}, nil, 0, 1, 0, 0, second},
		{"another method", []error{second}, []ClientOption{WithRetryMethods("/s/other")}, 0, 1, 0, 0, second},
		{"never", []error{never}, []ClientOption{retry}, 0, 1, 0, 0, never},
		{"no RetryInfo", []error{plain}, []ClientOption{retry}, 0, 1, 0, 0, plain},
		{"attempts", []error{second}, []ClientOption{retry}, 0, 4, 3300 * time.Millisecond, 3750 * time.Millisecond, second},
		{"fewer", []error{second}, []ClientOption{retry, WithMaxAttempts(1)}, 0, 1, 0, 0, second},
		{
			"total wait",
			[]error{second},
			[]ClientOption{retry, WithMaxAttempts(99), WithMaxWait(5 * time.Second)},
			0, 5,
			4400 * time.Millisecond, 5 * time.Second, second,
		},
		{"no wait", []error{second}, []ClientOption{retry, WithMaxWait(0)}, 0, 1, 0, 0, second},
		{
			"too long a wait",
			[]error{refusedFor(290 * 365 * 24 * time.Hour)},
			[]ClientOption{retry, WithMaxWait(math.MaxInt64)},
			time.Hour, 1,
			0, 0, refusedFor(290 * 365 * 24 * time.Hour),
		},
		{"deadline", []error{second}, []ClientOption{retry}, 1100 * time.Millisecond, 1, 0, 0, second},
		{"later deadline", []error{second}, []ClientOption{retry}, 1500 * time.Millisecond, 2, 1100 * time.Millisecond, 1250 * time.Millisecond, second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				start := time.Now()
				attempts, err := polite(ctx, tt.answers, tt.opts...)
				waited := time.Since(start)
				require.Equal(t, tt.attempts, attempts)
				require.GreaterOrEqual(t, waited, tt.least)
				require.LessOrEqual(t, waited, tt.most)
				if tt.want == nil {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, tt.want.Error(), "the refusal itself")
				}
			})
		})
	}
}

func TestPoliteClientIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		attempts, err := polite(ctx, []error{refusedFor(10 * time.Second)}, WithRetryAll())
		require.Equal(t, time.Second, time.Since(start), "the end of the context ends the wait")
		require.Equal(t, 1, attempts)
		require.Equal(t, codes.Canceled, status.Code(err))
	})
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{refusedFor(time.Second), refusedFor(time.Second), errors.New("broken")}
		attempts := 0
		err := Retry(t.Context(), func(context.Context) error {
			attempts++
			return answers[attempts-1]
		})
		require.EqualError(t, err, "broken")
		require.Equal(t, 3, attempts)
	})
}

func TestClientOptionsAreChecked(t *testing.T) {
	for want, opt := range map[string]ClientOption{
		"grpclimit: WithMaxAttempts is 0, must be 1 or more":                     WithMaxAttempts(0),
		"grpclimit: WithMaxWait is -1ns, must be 0 or more":                      WithMaxWait(-1),
		`grpclimit: WithRetryMethods has "s/m", must be /package.Service/Method`: WithRetryMethods("s/m"),
	} {
		require.PanicsWithValue(t, want, func() { UnaryClientInterceptor(opt) })
		require.PanicsWithValue(t, want, func() { _ = Retry(t.Context(), func(context.Context) error { return nil }, opt) })
	}
}

// A thousand clients that are refused together come back over 15 % of the wait, none of them early.
func TestRefusedTogetherComeBackApart(t *testing.T) {
	const clients, wait = 1000, 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		back := make(chan time.Duration, clients)
		for range clients {
			go func() {
				attempts := 0
				_ = Retry(t.Context(), func(context.Context) error {
					if attempts++; attempts == 1 {
						return refusedFor(wait)
					}
					back <- time.Since(start)
					return nil
				})
			}()
		}
		var after []time.Duration
		for range clients {
			after = append(after, <-back)
		}
		slices.Sort(after)
		require.GreaterOrEqual(t, after[0], wait*110/100)
		require.LessOrEqual(t, after[clients-1], wait*125/100)
		// In each tenth of the span 100 are due; 50 to 150 is beyond 5 standard deviations.
		perTenth := make([]int, 10)
		for _, d := range after {
			perTenth[min(9, int((d-wait*110/100)*10/(wait*15/100)))]++
		}
		for _, n := range perTenth {
			require.InDelta(t, clients/10, n, 50, "%v", perTenth)
		}
	})
}
