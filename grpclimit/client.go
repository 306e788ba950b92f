package grpclimit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leaselimit/leaselimit/internal/pace"
	"github.com/leaselimit/leaselimit/internal/patience"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A ClientOption changes what polite clients do.
type ClientOption func(*client)

type client struct {
	patience patience.Patience // of each call
	methods  []string
	all      bool
	pace     *pace.Pacer // nil if not asked for
}

func newClient(opts []ClientOption) *client {
	c := &client{patience: patience.Default()}
	for _, set := range opts {
		set(c)
	}
	c.patience.Check("grpclimit")
	for _, m := range c.methods {
		if m == "" || m[0] != '/' {
			panic(fmt.Sprintf("grpclimit: WithRetryMethods has %q, must be /package.Service/Method", m))
		}
	}
	return c
}

// WithMaxAttempts sets how often a call is made at most, the first time included: 1 or more, default 4.
func WithMaxAttempts(n int) ClientOption { return func(c *client) { c.patience.Attempts = n } }

// WithMaxWait sets how long a call is held back at most, over all attempts: 0 or more, default 30s. A refusal that asks for more is
// returned at once.
func WithMaxWait(d time.Duration) ClientOption { return func(c *client) { c.patience.Wait = d } }

// WithRetryMethods names methods that may be made again: full names, "/package.Service/Method". A server that refuses before
// its handler runs has done nothing, but a client cannot see whether it was that server, or one that the handler called.
func WithRetryMethods(fullMethods ...string) ClientOption {
	return func(c *client) { c.methods = append(c.methods, fullMethods...) }
}

// WithRetryAll lets every method be made again.
func WithRetryAll() ClientOption { return func(c *client) { c.all = true } }

// UnaryClientInterceptor makes a client polite: a refused call waits as long as the server says and is made again. It does so
// only with methods that [WithRetryMethods] or [WithRetryAll] name. Without them, and without [WithPacing], it changes nothing.
//
// Refused is ResourceExhausted or Unavailable with a RetryInfo. The wait is the server's and 10 to 25 % more, at random, never
// less: clients that were refused together do not come back together. A wait that would pass the context's deadline, or
// MaxWait, is not begun: the caller gets the refusal at once. The context's end ends a wait.
//
// Do not let gRPC's own retry policy handle the same codes: the attempts would multiply.
//
// It panics if an option is out of its bounds.
func UnaryClientInterceptor(opts ...ClientOption) grpc.UnaryClientInterceptor {
	c := newClient(opts)
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, callOpts ...grpc.CallOption,
	) error {
		left := c.patience
		if !c.all && !slices.Contains(c.methods, method) {
			left.Attempts = 1
		}
		return do(ctx, left, func(ctx context.Context, left *patience.Patience) error {
			if err := c.hold(ctx, cc, method, left); err != nil {
				return err
			}
			if c.pace == nil {
				return invoker(ctx, method, req, reply, cc, callOpts...)
			}
			var header, trailer metadata.MD
			sent := time.Now()
			err := invoker(ctx, method, req, reply, cc, append(slices.Clip(callOpts), grpc.Header(&header), grpc.Trailer(&trailer))...)
			c.learn(cc, method, sent, err, header, trailer)
			return err
		})
	}
}

// Retry runs call as [UnaryClientInterceptor] makes calls, whatever it does: it is for streams, whose refusal may come after
// messages were sent, so that only the program knows how to begin again. call has to return the error of the stream as it is,
// or wrapped. [WithPacing] does nothing here: give it to the interceptors of the connection. It panics as UnaryClientInterceptor
// does.
func Retry(ctx context.Context, call func(context.Context) error, opts ...ClientOption) error {
	return do(ctx, newClient(opts).patience, func(ctx context.Context, _ *patience.Patience) error { return call(ctx) })
}

// do makes a call until it is not refused any more, or left is used up.
func do(ctx context.Context, left patience.Patience, call func(context.Context, *patience.Patience) error) error {
	for {
		err := call(ctx, &left)
		told, ok := RetryDelay(err)
		if !ok {
			return err
		}
		wait, ok := left.Take(ctx, told)
		if !ok {
			return err
		}
		if !patience.Sleep(ctx, wait) {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// RetryDelay is how long the server that refused with err says to wait, without jitter. It reports false if err is no refusal,
// or one that says nothing: ResourceExhausted without RetryInfo can never pass.
func RetryDelay(err error) (time.Duration, bool) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0, false
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return max(info.GetRetryDelay().AsDuration(), minDelay), true
		}
	}
	return 0, false
}
