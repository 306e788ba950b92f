package serve

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// healthServer is gRPC health whose Watch ends with the drain. That of grpc-go ends with its client alone, so each open one would
// hold the drain up for as long as it may take.
type healthServer struct {
	*health.Server

	over chan struct{} // closed by drain
}

func newHealthServer() *healthServer {
	return &healthServer{Server: health.NewServer(), over: make(chan struct{})}
}

// drain says to all that nothing is served any more. It is called once.
func (h *healthServer) drain() {
	h.Shutdown()
	close(h.over)
}

// Watch sends NOT_SERVING before it ends, whatever is watched.
func (h *healthServer) Watch(req *grpc_health_v1.HealthCheckRequest, s grpc_health_v1.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	go func() {
		select {
		case <-h.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := h.Server.Watch(req, watch{s, ctx})
	select {
	case <-h.over:
	default:
		return err
	}
	_ = s.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}) // if it is still there
	return status.Error(codes.Unavailable, "draining")
}

// watch is a stream that can be ended here.
type watch struct {
	grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]

	ctx context.Context //nolint:containedctx // this is how a stream has a context
}

func (w watch) Context() context.Context { return w.ctx }
