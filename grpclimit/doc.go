// Package grpclimit puts a limiter before the methods of a gRPC server, and makes gRPC clients polite.
//
// It is not an authenticator: the tenant comes from a function that has to read it from a verified identity, such as what an
// interceptor before this one left in the context, or a TLS certificate. Metadata that a client sets is no identity. Nor does
// it queue: a call passes or is refused at once.
//
// # What clients see
//
//	refused by the limit          ResourceExhausted with RetryInfo and QuotaFailure details; no RetryInfo if the cost can
//	                              never pass
//	refused by FailClosed while   Unavailable with RetryInfo: it says nothing about the tenant's limit
//	the store is away
//	no tenant                     Unauthenticated
//	a tenant without a limit      PermissionDenied: the source of limits does not know it
//	the limiter failed            Unavailable
//	the call is over              Canceled or DeadlineExceeded
//
// Degraded and shadowed decisions are for logs, see [WithObserver] and [WithLogger]; clients are not told.
//
// # Streams
//
// A stream is charged once, when it is opened, like a unary call. [WithPerMessage] charges each message that the server
// receives instead, and not the opening. [StreamServerInterceptor] has the details.
//
// docs/grpc.md in the repository has a table of every case.
package grpclimit
