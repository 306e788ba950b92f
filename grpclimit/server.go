package grpclimit

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// UnaryServerInterceptor limits unary calls: each is charged to the tenant before the handler runs, and refused calls do not
// reach it. Several limiters, of different classes, may be stacked. Put the one that refuses most first, since what an earlier
// one charged stays charged.
//
// tenant names whom the call is charged to, from a verified identity. "" and an error refuse the call; an error that is a
// gRPC status is the answer, others and "" are answered with Unauthenticated.
//
// Clients get header metadata: ratelimit-policy and ratelimit, as in draft-ietf-httpapi-ratelimit-headers-11 (q is the capacity, w
// the seconds in which an empty bucket fills, r what remains, t the seconds in which that is refilled, or to wait), and on a
// refusal retry-after in whole seconds. What the handler sets beside them stays.
//
// It panics if lim or tenant is nil, or an option is out of its bounds.
func UnaryServerInterceptor(
	lim Allower, tenant func(ctx context.Context, fullMethod string) (string, error), opts ...Option,
) grpc.UnaryServerInterceptor {
	g := newGuard(lim, tenant, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if g.exempts(info.FullMethod) {
			return handler(ctx, req)
		}
		name, err := g.who(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		if name == "" { // let pass by WithError
			return handler(ctx, req)
		}
		md, err := g.charge(ctx, info.FullMethod, name, req)
		if md != nil {
			_ = grpc.SetHeader(ctx, md) // the headers are gone only if another interceptor sent them
		}
		if err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// StreamServerInterceptor limits streams of every kind, as [UnaryServerInterceptor] limits unary calls. A stream is charged
// once, when it is opened, before the handler runs: as many messages as you like then pass.
//
// With [WithPerMessage] the opening is free and each message that the server receives is charged before the handler sees it,
// so that of a limit of 10 exactly 10 messages pass. A refused message ends the stream: RecvMsg fails with the status, now and
// later, and the status is what the client gets, whatever the handler returns. The tenant is asked for once, at the opening.
//
// Metadata does not grow with the messages of a stream: it is of the first decision in the
// header, and of a refusal after that in the trailer.
func StreamServerInterceptor(
	lim Allower, tenant func(ctx context.Context, fullMethod string) (string, error), opts ...Option,
) grpc.StreamServerInterceptor {
	g := newGuard(lim, tenant, opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if g.exempts(info.FullMethod) {
			return handler(srv, ss)
		}
		name, err := g.who(ss.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		if name == "" { // let pass by WithError
			return handler(srv, ss)
		}
		if !g.perMessage {
			md, err := g.charge(ss.Context(), info.FullMethod, name, nil)
			setHeader(ss, md)
			if err != nil {
				return err
			}
			return handler(srv, ss)
		}
		s := &stream{ServerStream: ss, guard: g, fullMethod: info.FullMethod, tenant: name}
		err = handler(srv, s)
		if refused := s.refused.Load(); refused != nil {
			return *refused
		}
		return err
	}
}

// stream charges the messages that are received.
type stream struct {
	grpc.ServerStream

	guard      *guard
	fullMethod string
	tenant     string

	decided bool                  // RecvMsg is not called by two goroutines at a time
	refused atomic.Pointer[error] // a handler may return while another goroutine of it still receives
}

func (s *stream) RecvMsg(m any) error {
	if refused := s.refused.Load(); refused != nil {
		return *refused
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	md, err := s.guard.charge(s.Context(), s.fullMethod, s.tenant, m)
	switch {
	case !s.decided:
		s.decided = true
		setHeader(s.ServerStream, md)
	case err != nil && md != nil:
		s.SetTrailer(md)
	}
	if err != nil {
		s.refused.Store(&err)
	}
	return err
}

// setHeader adds md to what is sent first. It comes too late for a handler that sends before it receives.
func setHeader(ss grpc.ServerStream, md metadata.MD) {
	if md != nil {
		_ = ss.SetHeader(md)
	}
}
