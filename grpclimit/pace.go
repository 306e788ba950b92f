package grpclimit

import (
	"context"
	"time"

	"github.com/leaselimit/leaselimit/internal/pace"
	"github.com/leaselimit/leaselimit/internal/patience"
	"github.com/leaselimit/leaselimit/internal/ratefields"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// WithPacing holds calls back ahead of a refusal, from the ratelimit metadata of the last answer of the same method and target. From
// the moment when half of a quota is used up, calls leave one by one, as far apart as t/r says, and 10 to 25 % more; of several
// limits, the slowest rules. What an answer says is heeded until another one says otherwise, or more than half of the quota is there
// again. It never fails a call: one that would be held back past its deadline, or for longer than [WithMaxWait], is made at once. The
// end of the context ends it.
//
// Every method is paced, whether it may be made again or not. Methods that count against the same limit share its pace, and those that
// count against none, such as health checks, are not held.
//
// What is known is the option's. Make it once for each identity, as limits are, and give it to [UnaryClientInterceptor] and to
// [StreamClientInterceptor]: they then share it. Limits of a target are told apart by name and partition (pk), but which of them a
// call counts against is known only after the fact: it is taken to be those of the answer before.
func WithPacing() ClientOption {
	p := new(pace.Pacer)
	return func(c *client) { c.pace = p }
}

// StreamClientInterceptor makes a client polite that opens streams: with [WithPacing] the opening is held back like a unary call. It
// heeds what the stream's metadata say from the first message on, or from the stream's end. Messages are not held, and streams are not
// opened again: see [Retry]. Without WithPacing it changes nothing.
//
// It panics if an option is out of its bounds.
func StreamClientInterceptor(opts ...ClientOption) grpc.StreamClientInterceptor {
	c := newClient(opts)
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, callOpts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		left := c.patience
		if err := c.hold(ctx, cc, method, &left); err != nil {
			return nil, err
		}
		sent := time.Now()
		stream, err := streamer(ctx, desc, cc, method, callOpts...)
		if c.pace == nil || err != nil {
			return stream, err
		}
		return &pacedStream{ClientStream: stream, learn: func(sent time.Time, err error, md metadata.MD) {
			c.learn(cc, method, sent, err, md)
		}, sent: sent}, nil
	}
}

// pacedStream is a stream whose metadata are taken note of.
type pacedStream struct {
	grpc.ClientStream

	learn   func(sent time.Time, err error, md metadata.MD)
	sent    time.Time
	learned bool // from the header. RecvMsg is not called by two goroutines at a time
}

func (s *pacedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if !s.learned {
		s.learned = true
		if md, failed := s.Header(); failed == nil { // it is there by now, so this does not wait
			s.learn(s.sent, err, md)
		}
	}
	if err != nil { // a message may have been refused just now
		s.learn(time.Now(), err, s.Trailer())
	}
	return err
}

// hold waits until it is a call's turn, and takes that from left.
func (c *client) hold(ctx context.Context, cc *grpc.ClientConn, method string, left *patience.Patience) error {
	held, ok := c.pace.Hold(ctx, target(cc), method, left.Wait)
	if !ok {
		return status.FromContextError(ctx.Err()).Err()
	}
	left.Wait -= held
	return nil
}

// learn takes note of the answer to a call that was sent at some time: of the first of its metadata that tell of a limit.
func (c *client) learn(cc *grpc.ClientConn, method string, sent time.Time, err error, mds ...metadata.MD) {
	refused, _ := RetryDelay(err)
	for _, md := range mds {
		if limits := ratefields.Read(md.Get(ratefields.LimitName), md.Get(ratefields.PolicyName)); len(limits) > 0 {
			c.pace.Learn(target(cc), method, sent, refused, limits)
			return
		}
	}
}

func target(cc *grpc.ClientConn) string {
	if cc == nil { // as in tests of what is chained with the interceptor
		return ""
	}
	return cc.Target()
}
