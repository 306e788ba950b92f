package serve

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/ratefields"
	"github.com/leaselimit/leaselimit/quota"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// response words the decisions on the descriptors of one request. A decision without a class is of no limiter.
func response(decisions []leaselimit.Decision) *rls.RateLimitResponse {
	answer := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	for _, d := range decisions {
		s := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
		if !d.Allowed {
			s.Code, answer.OverallCode = rls.RateLimitResponse_OVER_LIMIT, rls.RateLimitResponse_OVER_LIMIT
		}
		if d.Class != "" {
			describe(s, d)
		}
		answer.Statuses = append(answer.Statuses, s)
	}
	answer.ResponseHeadersToAdd = headers(decisions)
	return answer
}

// describe says what is known of the limit.
func describe(s *rls.RateLimitResponse_DescriptorStatus, d leaselimit.Decision) {
	s.CurrentLimit = currentLimit(d.Class, d.Limit)
	if d.Degraded() { // the figures would be made up, but for the wait of this process's share
		if !d.Allowed && d.Policy == leaselimit.FailLocal {
			s.DurationUntilReset = durationpb.New(d.RetryAfter)
		}
		return
	}
	s.LimitRemaining = uint32(min(max(d.Remaining, 0), math.MaxUint32))
	switch full, ok := ratefields.Fill(d.Limit, d.Limit.Capacity-d.Remaining); {
	case d.Limit.IsUnlimited():
	case !d.Allowed && d.RetryAfter != leaselimit.Never:
		s.DurationUntilReset = durationpb.New(d.RetryAfter)
	case d.Allowed && ok:
		s.DurationUntilReset = durationpb.New(full)
	}
}

// units are those of the protocol that have a length, the longest first.
var units = []struct {
	unit   rls.RateLimitResponse_RateLimit_Unit
	length time.Duration
}{
	{rls.RateLimitResponse_RateLimit_DAY, 24 * time.Hour},
	{rls.RateLimitResponse_RateLimit_HOUR, time.Hour},
	{rls.RateLimitResponse_RateLimit_MINUTE, time.Minute},
	{rls.RateLimitResponse_RateLimit_SECOND, time.Second},
}

// currentLimit is the refill of l, as requests in so many units; the protocol has no word for a capacity. It is nil where the
// refill cannot be said: of no refill, of more than 2^32-1, and of a period that is neither whole seconds nor a part of one.
func currentLimit(class string, l quota.Limit) *rls.RateLimitResponse_RateLimit {
	if l.IsUnlimited() || l.Refill <= 0 {
		return nil
	}
	refill, per := l.Refill, l.Per
	if per < time.Second && time.Second%per == 0 {
		if refill > math.MaxUint32 {
			return nil
		}
		refill, per = refill*int64(time.Second/per), time.Second
	}
	for _, u := range units {
		if per%u.length != 0 || refill > math.MaxUint32 || per/u.length > math.MaxUint32 {
			continue
		}
		limit := &rls.RateLimitResponse_RateLimit{Name: class, RequestsPerUnit: uint32(refill), Unit: u.unit}
		if n := uint32(per / u.length); n > 1 {
			limit.UnitMultiplier = wrapperspb.UInt32(n)
		}
		return limit
	}
	return nil
}

// headers are those for the client: an item for each limit, and the longest wait if something is refused.
func headers(decisions []leaselimit.Decision) []*core.HeaderValue {
	var policies, limits []byte
	last := leaselimit.Decision{Allowed: true} // the refusal that can pass last
	for i := range decisions {
		d := &decisions[i]
		if d.Class != "" && ratefields.Known(d) {
			if len(limits) > 0 {
				policies, limits = append(policies, ", "...), append(limits, ", "...)
			}
			policies, limits = ratefields.AppendPolicy(policies, d.Class, d.Limit), ratefields.AppendLimit(limits, d)
		}
		if !d.Allowed && (last.Allowed || d.RetryAfter > last.RetryAfter) {
			last = *d
		}
	}
	var h []*core.HeaderValue
	add := func(name, value string) { h = append(h, &core.HeaderValue{Key: name, Value: value}) }
	if len(limits) > 0 {
		add(ratefields.PolicyName, string(policies))
		add(ratefields.LimitName, string(limits))
	}
	if wait := ratefields.RetryAfter(&last); wait > 0 {
		add(ratefields.RetryAfterName, strconv.FormatInt(wait, 10))
	}
	return h
}
