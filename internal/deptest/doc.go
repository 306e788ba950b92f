// Package deptest holds who may import whom in this module. There is nothing in it but its test.
//
// The directions keep what users pay for small: a service that limits in memory must not compile a Redis client, one that
// limits over Redis must not compile gRPC. Leaves know nothing of the rest, so each can be read and tested alone.
package deptest
