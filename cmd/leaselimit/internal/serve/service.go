package serve

import (
	"context"
	"math"

	envoy "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/leaselimit/leaselimit"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// service is envoy.service.ratelimit.v3.RateLimitService.
type service struct {
	rls.UnimplementedRateLimitServiceServer

	config config
	lims   limiters
	count  *counts
}

// charge is what one descriptor asks for.
type charge struct {
	lim    *leaselimit.Limiter // nil: there is no limit to ask
	tenant string
	cost   int64 // 0 asks and spends nothing
	class  class
	over   bool // refused without a limiter
}

// ShouldRateLimit decides on all descriptors of a request. It fails where the answer is Envoy's to give, by its
// failure_mode_deny.
func (s *service) ShouldRateLimit(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	answer, err := s.answer(ctx, req)
	if err != nil {
		s.count.answers.WithLabelValues("error").Inc()
		return nil, err
	}
	code := "ok"
	if answer.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		code = "over_limit"
	}
	s.count.answers.WithLabelValues(code).Inc()
	return answer, nil
}

func (s *service) answer(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	switch {
	case req.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "domain is empty")
	case len(req.GetDescriptors()) == 0:
		return nil, status.Error(codes.InvalidArgument, "descriptors is empty")
	}
	charges := make([]charge, len(req.GetDescriptors()))
	for i, d := range req.GetDescriptors() {
		if d.GetIsNegativeHits() {
			return nil, status.Errorf(codes.InvalidArgument, "descriptors[%d].is_negative_hits is not supported", i)
		}
		charges[i] = s.charge(req, d)
	}
	decisions, err := decide(ctx, charges)
	if err != nil {
		return nil, err
	}
	return response(decisions), nil
}

// charge finds out what d asks for.
func (s *service) charge(req *rls.RateLimitRequest, d *envoy.RateLimitDescriptor) charge {
	name, tenant, ok := s.config.find(req.GetDomain(), d)
	match := "matched"
	c := charge{lim: s.lims[name], class: s.config.Classes[name], tenant: tenant, cost: cost(req, d)}
	switch {
	case !ok:
		match, c.over = "unmatched", s.config.Unmatched == "refuse"
	case tenant == "": // not a tenant of its own, which all who name none would share, nor free of limits
		match, c.lim, c.over = "no_tenant", nil, true
	}
	s.count.descriptors.WithLabelValues(match).Inc()
	return c
}

// cost is the descriptor's hits_addend if it has one, else the request's, where 0 is 1.
func cost(req *rls.RateLimitRequest, d *envoy.RateLimitDescriptor) int64 {
	if own := d.GetHitsAddend(); own != nil {
		return int64(min(own.GetValue(), math.MaxInt64))
	}
	return max(1, int64(req.GetHitsAddend()))
}
