// Package leaselimit holds each tenant of a service to one limit over all replicas, and decides on almost every call from
// memory.
//
// A limit is a token bucket. The bucket of a tenant lives in a store that all replicas share: in Redis (package redisbucket) or
// in memory (package membucket). A replica draws a batch of tokens from it, a lease, and spends them in process. It refuses what
// the bucket cannot hold without asking, and merges concurrent questions into one.
//
// # The guarantee
//
// For a limit of capacity C and refill r, and a budget B = MaxOvershoot*C (10 % of the capacity by default, 0 with
// Config.Exact), over all replicas together:
//
//	in every window of length t, admitted <= C + r*t + B
//
// This depends on no count of replicas, no size of leases and no clock but the store's: only on each replica's monotonic
// clock running within 0.5 % of the store's. The scripts in the store hold it; [Limiter.Bound] gives the figures. Beyond it
// stand calls in flight, as with every limiter that asks for each call, and what [FailLocal] or [FailOpen] admit while the store
// is away. docs/accuracy.md in the repository has the proof and what is outside of it.
//
// Note that any token bucket passes C + r*t from an idle start: a limit of 10 with a refill of 10 a second passes 20 in its
// first second.
//
// # The price
//
// While other replicas hold leases, up to LeaseShare*C - B of a burst on one replica may be refused: 15 % of the capacity by
// default, 25 % in exact mode, none where LeaseShare is at most MaxOvershoot. The tokens that a crashed replica held come
// back after at most twice Config.LeaseTTL.
//
// This is not for billing, nor for quotas of a month: buckets are as durable as their store. Nor is it fair between tenants,
// and callers of [Limiter.Wait] are served in no order.
//
// # Words
//
//	tenant      whom a limit is for: a verified identity, never a header that a client may set
//	class       a named limit of a tenant, with a bucket of its own
//	limit       capacity, refill and the period of the refill: quota.Limit
//	cost        tokens that one call spends, 1 or more
//	lease       tokens taken from the shared bucket for one replica, for a time (the trust window, Config.LeaseTTL)
//	refuse      to answer no; Decision.RetryAfter says when the same cost could pass
//	degraded    decided without the shared bucket, by Config.OnFailure
//	overshoot   what is admitted above an ideal bucket, over a window
//
// # Errors and refusals
//
// A refusal is a [Decision], not an error. An error means that nothing was decided and nothing was spent. A store that does
// not answer is neither: [Config].OnFailure decides, and the Decision says so.
package leaselimit
