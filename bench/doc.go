// Package bench measures leaselimit beside its peers, and runs it against a Redis in a container. It is a module of its own
// that is never tagged, so that the peers are in nobody's module graph.
//
// Every benchmark asserts what its subject decides: a limiter that refuses by mistake is quick. Subjects that are compared
// run in the same process, one after the other, and are called the same way.
package bench
