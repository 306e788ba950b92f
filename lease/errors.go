package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrClosed is returned by every call after Close.
var ErrClosed = errors.New("lease: closed")

// A Reason tells apart the ways in which a store fails. The values are stable: they are label values of metrics.
type Reason string

// The reasons for which a store call fails.
const (
	ReasonTimeout   Reason = "timeout"   // no answer in time; the step may have happened
	ReasonRefused   Reason = "refused"   // no connection
	ReasonOOM       Reason = "oom"       // the store is at its memory limit
	ReasonReadOnly  Reason = "readonly"  // a replica, or a demoted primary
	ReasonLoading   Reason = "loading"   // the store is starting
	ReasonBusy      Reason = "busy"      // the store is blocked by a script
	ReasonNoScript  Reason = "noscript"  // the script is unknown even after it was sent in full
	ReasonWrongType Reason = "wrongtype" // something else is stored under this bucket's key
	ReasonCluster   Reason = "cluster"   // the cluster is down, or a slot is between nodes
	ReasonMalformed Reason = "malformed" // the answer makes no sense
	ReasonCrowded   Reason = "crowded"   // not asked: too many draws of this replica are under way
	ReasonOther     Reason = "other"
)

var reasons = [...]Reason{
	ReasonTimeout, ReasonRefused, ReasonOOM, ReasonReadOnly, ReasonLoading, ReasonBusy, ReasonNoScript, ReasonWrongType,
	ReasonCluster, ReasonMalformed, ReasonCrowded, ReasonOther,
}

// Reasons are all reasons, in the order of their declaration.
func Reasons() []Reason { return slices.Clone(reasons[:]) }

// ofBucket reports whether a failure says nothing about other buckets: the store did answer.
func (r Reason) ofBucket() bool { return r == ReasonWrongType || r == ReasonMalformed }

// StoreError is how a Store reports a failed call.
type StoreError struct {
	Op     string // the operation: "acquire", "return", "take", "peek", "reset" or "present"
	Reason Reason
	Err    error
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("lease: %s failed (%s): %v", e.Op, e.Reason, e.Err)
}

// Unwrap returns the error of the store's client.
func (e *StoreError) Unwrap() error { return e.Err }

// ReasonOf is the Reason of an error returned by a Store: [ReasonTimeout] for a context that is done, [ReasonOther] for an
// error that says no more.
func ReasonOf(err error) Reason {
	if se, ok := errors.AsType[*StoreError](err); ok {
		return se.Reason
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return ReasonTimeout
	}
	return ReasonOther
}
