package leaselimit

import (
	"fmt"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// A Decision is the answer to one call. The zero Decision refuses.
type Decision struct {
	// Allowed reports whether the call may go on.
	Allowed bool
	// Source says who decided.
	Source Source
	// Shadowed reports that the call is refused and was allowed nevertheless, by Config.Shadow.
	Shadowed bool
	// Policy, of a degraded decision, is the policy that decided: a refusal by FailLocal is one by a limit, if only by this
	// replica's share of it; one by FailClosed says nothing about the tenant.
	Policy FailurePolicy
	// Class is the class of Limit: [Limiter.Class].
	Class string
	// Limit is the limit that was applied.
	Limit quota.Limit
	// Remaining is how many tokens are left after the call as far as this replica knows: 0 to Limit.Capacity, or
	// MaxInt64 of an unlimited tenant. Other replicas may have taken some since.
	Remaining int64
	// RetryAfter, of a refusal, is when the same cost could pass: a client that is alone and waits as long is admitted.
	// It is [Never] if the cost can never pass, and 0 if the call is allowed.
	RetryAfter time.Duration
}

// Never is the RetryAfter of what can never pass: a cost above the capacity, or any cost where nothing is left and nothing is
// refilled.
const Never = lease.Never

// Degraded reports whether the call was decided without the shared bucket, under Config.OnFailure.
func (d Decision) Degraded() bool { return d.Source == SourceFallback }

// String gives d in a few words, for logs and tests.
func (d Decision) String() string {
	word := "refused"
	if d.Allowed {
		word = "allowed"
	}
	if d.Shadowed {
		word += " in shadow"
	}
	s := fmt.Sprintf("%s by %v, %d of %v left", word, d.Source, d.Remaining, d.Limit)
	switch {
	case d.RetryAfter == Never:
		s += ", never again"
	case d.RetryAfter > 0:
		s += fmt.Sprintf(", again in %v", d.RetryAfter)
	}
	return s
}

// A Source says who decided on a call.
type Source uint8

// The sources of decisions.
const (
	// SourceLease: from what this replica has in hand, without a network trip. An unlimited tenant's calls, too.
	SourceLease Source = iota + 1
	// SourceStore: by the shared bucket, which the call waited for.
	SourceStore
	// SourcePrecheck: refused here, because the shared bucket cannot have what the call costs, or was asked a moment ago.
	SourcePrecheck
	// SourceFallback: without the shared bucket, which does not answer, by Config.OnFailure.
	SourceFallback
)

// String is the source's name, as in metrics.
func (s Source) String() string {
	switch s {
	case SourceLease:
		return "lease"
	case SourceStore:
		return "store"
	case SourcePrecheck:
		return "precheck"
	case SourceFallback:
		return "fallback"
	}
	return "none"
}
