package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// closeTimeout bounds the return of leases, and the end of the HTTP server.
const closeTimeout = 5 * time.Second

// server is the two servers and what they serve from.
type server struct {
	settings

	log    *slog.Logger
	lims   limiters
	grpc   *grpc.Server
	health *healthServer
	http   *http.Server
	over   atomic.Bool // it drains
}

func newServer(s settings, c config, lims limiters, log *slog.Logger) (*server, error) {
	srv := &server{settings: s, log: log, lims: lims, health: newHealthServer()}
	options := []grpc.ServerOption{grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
		MinTime: 5 * time.Second, PermitWithoutStream: true, // proxies keep idle connections open
	})}
	if s.tlsCert != "" {
		tls, err := credentials.NewServerTLSFromFile(s.tlsCert, s.tlsKey)
		if err != nil {
			return nil, fmt.Errorf("-tls-cert, -tls-key: %w", err)
		}
		options = append(options, grpc.Creds(tls))
	}
	srv.grpc = grpc.NewServer(options...)
	count := newCounts()
	rls.RegisterRateLimitServiceServer(srv.grpc, &service{config: c, lims: lims, count: count})
	grpc_health_v1.RegisterHealthServer(srv.grpc, srv.health)
	srv.health.SetServingStatus(rls.RateLimitService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(count.registry(lims), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", srv.healthz)
	srv.http = &http.Server{Handler: mux, ReadHeaderTimeout: closeTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	return srv, nil
}

// healthz does not ask the store: without it the failure policy decides, and a new process could do no better.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	if s.over.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// run serves until ctx is done, and then drains: no new connections, calls under way are answered, leases are returned.
func (s *server) run(ctx context.Context, out cli.Streams) error {
	var lc net.ListenConfig
	grpcListener, err := lc.Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	httpListener, err := lc.Listen(ctx, "tcp", s.httpListen)
	if err != nil {
		_ = grpcListener.Close()
		return fmt.Errorf("-http: %w", err)
	}
	ended := make(chan error, 2)
	go func() { ended <- s.grpc.Serve(grpcListener) }()
	go func() { ended <- s.http.Serve(httpListener) }()
	_, err = fmt.Fprintf(out.Out, "rate limit service on %s\nmetrics and health on %s\n", grpcListener.Addr(), httpListener.Addr())

	running := 2
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-ended: // nobody told it to
			running--
		}
	}
	err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
	for range running {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// stop ends both servers. Whoever watches their health is told first. The HTTP one is the last, so that the end can be watched.
func (s *server) stop(ctx context.Context) error {
	s.over.Store(true)
	s.health.drain()
	late := time.AfterFunc(s.drain, s.grpc.Stop)
	s.grpc.GracefulStop()
	late.Stop()
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := s.lims.close(ctx); err != nil { // they come back by themselves, after two trust windows at the most
		s.log.Warn("serve: leases were not returned", slog.Any("error", err))
	}
	if s.http.Shutdown(ctx) != nil { // a scrape that does not end
		return s.http.Close()
	}
	return nil
}
