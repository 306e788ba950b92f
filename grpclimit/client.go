package grpclimit

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A ClientOption changes what polite clients do.
type ClientOption func(*client)

type client struct {
	attempts int
	wait     time.Duration
	methods  []string
	all      bool
}

// The defaults of clients.
const (
	defaultAttempts = 4
	defaultWait     = 30 * time.Second
)

func newClient(opts []ClientOption) (*client, error) {
	c := &client{attempts: defaultAttempts, wait: defaultWait}
	for _, set := range opts {
		set(c)
	}
	switch {
	case c.attempts < 1:
		return c, status.Errorf(codes.Internal, "grpclimit: MaxAttempts is %d, must be 1 or more", c.attempts)
	case c.wait < 0:
		return c, status.Errorf(codes.Internal, "grpclimit: MaxWait is %v, must be 0 or more", c.wait)
	}
	for _, m := range c.methods {
		if m == "" || m[0] != '/' {
			return c, status.Errorf(codes.Internal, "grpclimit: RetryMethods has %q, must be /package.Service/Method", m)
		}
	}
	return c, nil
}

// WithMaxAttempts is how often a call is made at most, with the first time: 1 or more, default 4.
func WithMaxAttempts(n int) ClientOption { return func(c *client) { c.attempts = n } }

// WithMaxWait is how long a call waits at most, over all its attempts: default 30s. A longer wait is not begun.
func WithMaxWait(d time.Duration) ClientOption { return func(c *client) { c.wait = d } }

// WithRetryMethods names methods that may be made again: full names, "/package.Service/Method". A server that refuses before
// its handler runs has done nothing, but a client cannot see whether it was that server, or one that the handler called.
func WithRetryMethods(fullMethods ...string) ClientOption {
	return func(c *client) { c.methods = append(c.methods, fullMethods...) }
}

// WithRetryAll lets every method be made again.
func WithRetryAll() ClientOption { return func(c *client) { c.all = true } }

// UnaryClientInterceptor makes a client polite: a refused call waits as long as the server says and is made again. It does so
// only with methods that [WithRetryMethods] or [WithRetryAll] name; without them it changes nothing.
//
// Refused is ResourceExhausted or Unavailable with a RetryInfo. The wait is the server's and 10 to 25 % more, at random, never
// less: clients that were refused together do not come back together. A wait that would pass the context's deadline, or
// MaxWait, is not begun: the caller gets the refusal at once. The context's end ends a wait.
//
// Do not let gRPC's own retry policy handle the same codes: the attempts would multiply.
func UnaryClientInterceptor(opts ...ClientOption) grpc.UnaryClientInterceptor {
	c, broken := newClient(opts)
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, callOpts ...grpc.CallOption,
	) error {
		call := func(ctx context.Context) error { return invoker(ctx, method, req, reply, cc, callOpts...) }
		switch {
		case broken != nil:
			return broken
		case !c.all && !slices.Contains(c.methods, method):
			return call(ctx)
		}
		return c.do(ctx, call)
	}
}

// Retry runs call as [UnaryClientInterceptor] makes calls, whatever it does: it is for streams, whose refusal may come after
// messages were sent, so that only the program knows how to begin again. call has to return the error of the stream as it is,
// or wrapped.
func Retry(ctx context.Context, call func(context.Context) error, opts ...ClientOption) error {
	c, broken := newClient(opts)
	if broken != nil {
		return broken
	}
	return c.do(ctx, call)
}

func (c *client) do(ctx context.Context, call func(context.Context) error) error {
	left := c.wait
	for attempt := 1; ; attempt++ {
		err := call(ctx)
		delay, ok := RetryDelay(err)
		if !ok || attempt >= c.attempts {
			return err
		}
		delay = later(delay)
		if deadline, ok := ctx.Deadline(); delay > left || ok && time.Until(deadline) <= delay {
			return err
		}
		left -= delay
		if ctxErr := sleep(ctx, delay); ctxErr != nil {
			return status.FromContextError(ctxErr).Err()
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

// later is d and 10 to 25 % of it, so that clients that were refused together come back apart.
func later(d time.Duration) time.Duration {
	if d > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return d + time.Duration(float64(d)*(0.10+0.15*rand.Float64()))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
