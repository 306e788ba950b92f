// Package chaos holds tests that break the store under load and look at what callers saw, what was counted and logged, and
// what the buckets hold afterwards. It has no code but tests.
//
// Two kinds: faults of real servers, alone, in a Cluster and in a Sentinel group, one at a time (TestFaults) and in a random
// order (TestRandomFaults, whose seed and length are flags); and a thousand random schedules of lost, late and failed calls
// on virtual time, where every token is accounted for (TestSchedules).
//
// What is not asserted: how long anything takes. The worst wait is logged.
package chaos
