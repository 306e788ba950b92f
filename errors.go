package leaselimit

import (
	"context"
	"errors"
	"fmt"
)

// The errors of calls that were not decided. A call that was refused has no error but a [Decision].
var (
	// ErrClosed is returned by every call after [Limiter.Close].
	ErrClosed = errors.New("leaselimit: limiter is closed")
	// ErrInvalidCost is returned for a cost of 0 (use Peek) or below.
	ErrInvalidCost = errors.New("leaselimit: cost must be 1 or more")
	// ErrInvalidTenant is returned for the empty tenant.
	ErrInvalidTenant = errors.New("leaselimit: tenant is empty")
	// ErrInvalidCharges is returned by [AllowAll] for no charges, a charge without a limiter, and limiters over different stores.
	ErrInvalidCharges = errors.New("leaselimit: invalid charges")
	// ErrInvalidActual is returned by [Estimate.Settle] for a negative cost.
	ErrInvalidActual = errors.New("leaselimit: actual cost must be 0 or more")
	// ErrSettled is returned by [Estimate.Settle] from the second time on.
	ErrSettled = errors.New("leaselimit: estimate is settled already")
)

// A RefusedError is returned by [Limiter.Wait] when waiting cannot help: the cost can never pass, or not before the
// context's deadline. In the second case it matches [context.DeadlineExceeded].
type RefusedError struct {
	Decision Decision
	cause    error
}

func (e *RefusedError) Error() string {
	if e.Decision.RetryAfter == Never {
		return "leaselimit: refused: cost can never pass"
	}
	return fmt.Sprintf("leaselimit: refused: cost could pass in %v, after the deadline", e.Decision.RetryAfter)
}

// Unwrap returns [context.DeadlineExceeded] if a deadline is the reason.
func (e *RefusedError) Unwrap() error { return e.cause }

var _ error = (*RefusedError)(nil)

func undecided(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("leaselimit: no decision: %w", err)
	}
	return err
}
