// Package leaselimit holds each tenant of a service to one limit over all replicas, and decides on almost every call of a busy
// tenant from memory.
//
// A limit is a token bucket. The bucket of a tenant lives in a store that all replicas share: in Redis (package redisbucket) or
// in memory (package membucket). A replica draws a batch of tokens from it, a lease, and spends them in process. It refuses
// without asking what the bucket cannot hold, and merges concurrent questions into one.
//
// Make one [Limiter] with [New] for each class and process, ask it with [Limiter.Allow], and [Limiter.Close] it at the end.
//
// # The guarantee
//
// For a limit of capacity C and refill r, and a budget B = MaxOvershoot*C (10 % of the capacity by default, 0 with
// Config.Exact), over all replicas together:
//
//	in every window of length t, admitted <= C + r*t + B
//
// This depends on no count of replicas, no size of leases and no clock but the store's: only on each replica's monotonic
// clock running within 0.5 % of the store's. The scripts in the store hold it; [Limiter.Bound] gives the figures. On top of it
// come calls in flight, as with every limiter that asks for each call, what [FailLocal] or [FailOpen] admit while the store
// is away, and what a store forgets that loses buckets. docs/accuracy.md in the repository has the proof and all that is outside
// of it.
//
// Note that any token bucket passes C + r*t from an idle start: a limit of 10 with a refill of 10 a second passes 20 in its
// first second.
//
// # The price
//
// Calls of a tenant that seldom calls a replica (less than once in about 5 s), or whose capacity is below 4 tokens for each
// replica, mostly wait for the store, as with a limiter that asks for each call.
//
// While other replicas hold leases, up to LeaseShare*C - B of a burst on one replica may be refused: 15 % of the capacity by
// default, 25 % in exact mode, none where LeaseShare is at most MaxOvershoot. The tokens that a crashed replica held come
// back after at most twice Config.LeaseTTL.
//
// This is not for billing, nor for quotas of a month: buckets are as durable as their store. Nor does it divide what a service can
// bear among its tenants, and callers of [Limiter.Wait] are served in no order.
//
// # Words
//
//	tenant      whom a limit is for: a verified identity, never a header that a client may set
//	replica     a Limiter of the class, most often one in each process of the service
//	class       a named limit of a tenant, with a bucket of its own
//	limit       capacity, refill and the period of the refill: quota.Limit
//	cost        tokens that one call spends, 1 or more
//	store       what keeps the shared buckets: Redis, or memory
//	draw        a question to the store for tokens
//	lease       tokens taken from the shared bucket for one replica, for a time (the trust window, Config.LeaseTTL)
//	refuse      to answer no; Decision.RetryAfter says when the same cost could pass
//	degraded    decided without the shared bucket, by Config.OnFailure
//	overshoot   what is admitted above an ideal bucket, over a window
//
// # Errors and refusals
//
// A refusal is a [Decision], not an error. An error means that nothing was decided and nothing was spent. A store that does
// not answer is neither: [Config].OnFailure decides, and the Decision says so.
//
// # Packages
//
//	redisbucket, membucket   the stores
//	quota                    limits, and who has which; quota.Cache, sqlquota and pgnotify for limits from a database
//	httplimit, grpclimit     middleware, interceptors and polite clients
//	metrics, debugpage       Prometheus collectors, and a page about one replica
//	otellimit                OpenTelemetry spans, a module of its own
//	cmd/leaselimit           a demo, tuning, a look into Redis, and Envoy's rate limit service
package leaselimit
