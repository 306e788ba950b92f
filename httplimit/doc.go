// Package httplimit puts a limiter in front of HTTP handlers, with right answers to clients ([Middleware]), and makes clients
// that heed such answers ([NewTransport]).
//
// # The tenant
//
// Whom a request counts for must be a verified identity: what an authentication middleware found out and put into the
// request's context. A header that the client may set is none: each new value would be a new full bucket. Client addresses are
// none either, unless every proxy in front is trusted to tell them.
//
// # What clients see
//
// Responses to admitted and to refused requests carry RateLimit-Policy and RateLimit, structured fields (RFC 9651) as in
// draft-ietf-httpapi-ratelimit-headers-11 of May 2026; see [RateLimitDraft11]. A refusal is 429 with Retry-After in whole
// seconds, rounded up, and a body of application/problem+json (RFC 9457). docs/http.md in the repository has a table of every
// case. Degraded and shadowed decisions are for logs, see [WithObserver] and [WithLogger]; clients are not told.
//
// # What is not promised
//
// The fields are hints of one replica: others may have taken tokens since, and a positive r is no promise. A limiter in a
// handler cannot ward off a flood of connections. A request that was admitted and then failed is not given back its tokens. The
// transport never waits past a request's deadline, and so it cannot promise that a request passes.
package httplimit
