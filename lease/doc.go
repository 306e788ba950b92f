// Package lease is the protocol by which replicas share one token bucket: who draws how much, for how long it may be spent,
// and what goes back. leaselimit is the facade over it; stores plug in below.
//
// What is not promised: fairness between callers of one tenant, an order among those that wait, or that a call that could pass
// on another replica passes here.
//
// # The words
//
// The shared bucket lives in a [Store]. A [Holder] is one tenant's leases in this replica; a [Pool] is what the holders of
// one limiter share. A lease is surplus that a draw brought along for later calls. Waiters' tokens pay for the calls that
// wait for the draw and are spent when it lands.
//
// # One call
//
//	           lease covers it                pre-check knows better
//	call ──► TrySpend ─────────► allowed   ──► refused
//	            │ neither
//	            ▼
//	          Spend ──► queue ──► draw ──► land ──► allowed, refused, or (3 rounds at most) queue
//	                      ▲         │        │
//	          more calls ─┘         ▼        ├──► lease, for later calls
//	                             Acquire     └──► what no waiter wants any more: Return
//
// # Several limits at once, and estimates
//
// A [Part] is one limit's part of a call that several have to let pass. Tokens that it took and has to give back, like those of an
// estimate that was too high ([Holder.Refund]), go into the lease that they are of, as long as it lives and they were not
// reported: reported tokens are not counted as out any more, and held all the same they would break the bound. All others go
// to the store as waiters' tokens do, with the time at which they were spent.
//
// # A holder's draws
//
//	       call not covered, low water, or tick of a pressed replica
//	idle ───────────────────────────────────────────────────────────► flying
//	 ▲                                                                  │ depart: decide on whoever can be,
//	 │  nobody waits and nothing is wanted                              │ sum up the others, Acquire
//	 └──────────────────────────── land ◄───────────────────────────────┘
//	                                │ answer: credit the lease once, hand out, rearm low water
//	                                │ refusal: nobody asks again for 5 ms; calls are judged by the level
//	                                │ failure: every waiter once to the failure policy, then a pause
//	                                └ no answer within the timeout: the same, and a late grant is still not lost
//
// One goroutine draws for a holder at a time, so all calls that wait share one question, and those that come meanwhile share
// the next. What may coalesce: the wish for a top-up (a flag), calls that wait (a sum). What must not: grants. A grant is
// credited in one place, once, and every waiter then takes its cost like anybody else.
//
// # The trust window
//
// A lease may be spent for TTL, less 0.5 % and 1 ms, counted from before its request was sent, on the monotonic clock of this
// replica. The store counts it for at least TTL from the grant, which is later. So whatever the delay of the answer, and with
// clocks that run up to 0.5 % apart, no token is spent that the store has ceased to count. A machine that was suspended,
// whose monotonic clock stood still, is found out by its wall clock within a second of running again, and ends all leases.
//
// # Why the bound holds
//
// The store keeps level + out <= capacity + budget, where out counts all surplus until it is reported, returned, or two
// epochs old. What replicas hold is never more than out. So what can be admitted in a window of length t is what level and
// leases held at its start, plus the refill: capacity + refill*t + budget. It takes four rules:
//
//   - R1: the refill comes first, under the old cap; then reports and returns; then the grant.
//   - R2: a refill that crosses the border of an epoch is done in pieces, each under its own cap.
//   - R3: reports and returns name the epoch of their grant; unknown epochs are ignored, and no count goes below 0.
//   - R4: a report is sent at most once. A draw whose outcome is unknown is not repeated, and its tokens age out.
//
// R1 to R3 are kept by the store, R4 and the window by this package. Waiters' tokens are not counted, so they must not be
// kept: what no waiter spends goes back at once, less what the bucket was refilled with in their place (docs/adr/0005).
//
// # A pressed replica
//
// Where callers are refused and leasing pays, a replica stops asking for each of them. It refuses what the level of the last
// answer rules out, and asks in the background, about once in the horizon. Such a draw may be future-dated: the bucket goes
// into debt by at most the refill of the horizon, and each token becomes ready when an ideal bucket would have made it. Since
// the level is then below 0, the pre-check refuses for as long, and the load on the store does not depend on the load of
// the tenant.
//
// # Failures
//
//   - The answer is lost: the tokens are lost to this replica. Surplus ages out in the store within two TTL.
//   - The answer is late: its waiters have been failed over, so their tokens go back; the lease has what is left of its
//     window.
//   - The store fails: every waiter is told once. For a pause of 50 to 250 ms calls of the tenant are failed without asking.
//   - The store fails 3 times in a row, or for 1 s: a breaker opens for all tenants. Nothing is drawn until a probe in the
//     background is answered in time (docs/adr/0010).
//   - The replica crashes: its leases age out in the store within two TTL.
//   - The holder is closed while a draw is under way: its calls are answered, its surplus goes straight back.
package lease
