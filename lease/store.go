package lease

import (
	"context"
	"time"

	"github.com/leaselimit/leaselimit/quota"
)

// A Store keeps the shared buckets. redisbucket and membucket are the two in this module; storetest is the suite that
// every implementation has to pass.
//
// Each method is one atomic step on the store, in the store's own time. None may be retried by the implementation once the
// request may have been executed: a repeated draw debits twice. A failed call returns a [*StoreError] that says why; the
// caller then has to assume that the step happened and that its answer was lost.
//
// Implementations are safe for concurrent use. They should give up when ctx is done; a Holder does not rely on it.
type Store interface {
	// Acquire draws tokens for the callers that wait (waiters' tokens) and a lease for later (surplus), after applying
	// the reports of what was spent of earlier leases.
	Acquire(ctx context.Context, req AcquireRequest) (Grant, error)

	// Return gives tokens back, each item in a step of its own, as many of them as possible in one round trip. What
	// could not be returned is lost to the bucket until its epoch ages out, so the error is of interest to counters only.
	Return(ctx context.Context, items []Return) error

	// Take takes all of the charges or none of them, in one round trip and without any lease. The keys must name the
	// same tenant. A bucket that several of them name is charged the sum, under the terms of the first.
	Take(ctx context.Context, charges []Charge) (TakeReply, error)

	// Peek reads a bucket as it would be for a draw now. It spends nothing, writes nothing and creates no key.
	Peek(ctx context.Context, key Key, terms Terms) (State, error)

	// Reset fills a bucket up. Leases that are out stay counted, so a full bucket holds at most Capacity + Budget less
	// what is out. It is also the cure for a key of the wrong type.
	Reset(ctx context.Context, key Key) error
}

// Terms are the limit of a bucket and the rules of its leases, as this replica knows them. They take over in the bucket with
// each request; time that has passed is priced at the terms that stood while it passed.
type Terms struct {
	Limit  quota.Limit   // a valid one, not quota.Unlimited
	Budget int64         // B: tokens by which all replicas together may overshoot
	Share  int64         // S: most surplus that may be out over all replicas
	TTL    time.Duration // tau: the trust window; stored in whole milliseconds, rounded up
}

// AcquireRequest asks for tokens. All counts are in tokens.
type AcquireRequest struct {
	Key   Key
	Terms Terms

	// Min is the smallest waiting cost not covered locally; less than this is not granted to waiters. Where nobody waits it
	// is the smallest cost refused of late, or 0: RetryAfter and a future-dated lease go by it.
	Min  int64
	Need int64 // sum of the waiting costs not covered locally, at least Min; 0 if nobody waits
	Want int64 // surplus wished for

	// Horizon, if positive, makes the surplus future-dated: the bucket may go into debt by what it refills in this time,
	// and the tokens become ready when an ideal bucket would have made them. Only a pressed replica sets it.
	Horizon time.Duration

	// Replicas is how many replicas share the bucket as far as is known, 0 if it is not. It shapes the size of the
	// surplus, never the bound.
	Replicas int

	// Held is the surplus that the asker has in hand. What is left of the share when it is nearly used up goes to those
	// that have none: a replica that holds some gets no more of it than the even part, even if that is nothing.
	Held int64

	// Reports say what was spent of earlier surplus, at most one for each of the last two epochs.
	Reports [2]Report
}

// A Report says that Tokens of the surplus granted in Epoch have been spent. The zero Report says nothing.
type Report struct {
	Epoch  int64
	Tokens int64
}

// A Grant answers an AcquireRequest. All counts are in tokens.
type Grant struct {
	Waiters int64 // for the callers waiting: 0, or Min to Need
	Surplus int64 // for later, counted as out until it is reported or returned, or its epoch ages out
	Epoch   int64 // of the surplus, to be named in reports and returns

	// Ready of the surplus may be spent at once. The Next ones become ready together, First after the answer; each further
	// one Spacing after the one before. With Ready == Surplus, as in every grant without a Horizon, all three are 0.
	Ready, Next    int64
	First, Spacing time.Duration

	At         float64       // when it was granted, in ms of the store's clock
	Level      float64       // what the bucket holds after the grant; below 0 is debt
	RetryAfter time.Duration // when Min could be granted, 0 if it was, Never if it cannot
}

// Never is the RetryAfter of what can never pass.
const Never time.Duration = 1<<63 - 1

// A Return gives back tokens of one bucket.
type Return struct {
	Key   Key
	Terms Terms

	// Waiters is the number of waiters' tokens that no waiter spent, of the grant made At. What the bucket was refilled with
	// since then, in their place, is not credited a second time (docs/adr/0005).
	Waiters int64
	At      float64

	// Unspent is surplus of Epoch that is given back; Spent is surplus of it that was spent and not yet reported.
	Epoch   int64
	Unspent int64
	Spent   int64
}

// A Charge is what one call takes from one bucket.
type Charge struct {
	Key   Key
	Terms Terms
	Cost  int64 // 1 or more

	// Owe says that the cost is of what was done already: it is charged in any case and refuses nothing. It may take the
	// bucket into debt, of one capacity at most; the rest is forgiven.
	Owe bool

	// Reports say what was spent of earlier surplus of this bucket, as in an AcquireRequest.
	Reports [2]Report
}

// TakeReply answers a Take.
type TakeReply struct {
	Allowed bool
	At      float64 // when it was decided, in ms of the store's clock
	Levels  []Level // one for each charge
}

// A Level is one bucket's part of a TakeReply.
type Level struct {
	Tokens     float64       // after the take
	RetryAfter time.Duration // when the charge's cost could pass, 0 if it could now, Never if it cannot
}

// State is what Peek sees.
type State struct {
	Exists     bool // whether the store has a record; without one the bucket is full
	Level      float64
	Out        int64         // surplus that is out, over all replicas
	RetryAfter time.Duration // when a cost of 1 could pass
}
