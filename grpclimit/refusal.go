package grpclimit

import (
	"strings"
	"time"

	"github.com/leaselimit/leaselimit"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// minDelay keeps a RetryInfo from saying "at once".
const minDelay = time.Millisecond

// refusal is the status of a call that d refuses. FailClosed refuses whatever the tenant did: that is a fault behind the service, and
// no limit that was exceeded.
func refusal(tenant string, d leaselimit.Decision) error {
	var details []protoadapt.MessageV1
	if d.RetryAfter != leaselimit.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(max(d.RetryAfter, minDelay))})
	}
	if d.Degraded() && d.Policy == leaselimit.FailClosed {
		return detailed(codes.Unavailable, "the rate limiter cannot ask for the limit", details)
	}
	text := "rate limit exceeded"
	if d.RetryAfter == leaselimit.Never {
		text = "rate limit exceeded: the call can never pass"
	}
	// Protobuf has no text but UTF-8, and a status that cannot be encoded would be one without RetryInfo, too.
	valid := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	return detailed(codes.ResourceExhausted, text, append(details, &errdetails.QuotaFailure{
		Violations: []*errdetails.QuotaFailure_Violation{{
			Subject:     "tenant:" + valid(tenant),
			Description: "limit of class " + valid(d.Class) + ": " + d.Limit.String(),
			QuotaId:     valid(d.Class),
			QuotaValue:  d.Limit.Capacity,
		}},
	}))
}

func detailed(code codes.Code, text string, details []protoadapt.MessageV1) error {
	s := status.New(code, text)
	if with, err := s.WithDetails(details...); err == nil { // it fails for OK, and for what protobuf cannot encode
		s = with
	}
	return s.Err()
}
