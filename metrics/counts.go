package metrics

import (
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/prometheus/client_golang/prometheus"
)

// A count is one series of a class, taken from its Stats.
type count struct {
	name, help string
	kind       prometheus.ValueType
	label      []string // names of the labels
	values     []string // of them
	value      func(*leaselimit.Stats) float64
	known      func(*leaselimit.Stats) bool // nil: always
}

// counts are all series that come from Stats, those of one name side by side. A field more is a line more.
var counts = []count{
	allowed("lease", func(s *leaselimit.Stats) int64 { return s.AllowedLease }),
	allowed("store", func(s *leaselimit.Stats) int64 { return s.AllowedStore }),
	allowed("fallback", func(s *leaselimit.Stats) int64 { return s.AllowedFallback }),
	allowed("unlimited", func(s *leaselimit.Stats) int64 { return s.AllowedUnlimited }),
	refused("precheck", func(s *leaselimit.Stats) int64 { return s.RefusedPrecheck }),
	refused("store", func(s *leaselimit.Stats) int64 { return s.RefusedStore }),
	refused("floor", func(s *leaselimit.Stats) int64 { return s.RefusedFloor }),
	refused("fallback", func(s *leaselimit.Stats) int64 { return s.RefusedFallback }),
	refused("capacity", func(s *leaselimit.Stats) int64 { return s.RefusedNever }),
	refused("together", func(s *leaselimit.Stats) int64 { return s.RefusedTogether }),

	counter("errors_total", "Calls that were not decided: invalid, cancelled, or without a limit.",
		func(s *leaselimit.Stats) int64 { return s.Errors }),
	counter("shadowed_total", "Refusals that shadow mode let pass. They are counted as refused, too.",
		func(s *leaselimit.Stats) int64 { return s.Shadowed }),
	counter("waited_total", "Calls that waited for the store.",
		func(s *leaselimit.Stats) int64 { return s.Waited }),
	counter("store_late_total", "Draws answered after the store timeout.",
		func(s *leaselimit.Stats) int64 { return s.LateDraws }),

	tokens("granted", func(s *leaselimit.Stats) int64 { return s.TokensGranted }),
	tokens("spent", func(s *leaselimit.Stats) int64 { return s.TokensSpent + s.TokensUndone }), // a counter must not fall
	tokens("undone", func(s *leaselimit.Stats) int64 { return s.TokensUndone }),
	tokens("returned", func(s *leaselimit.Stats) int64 { return s.TokensReturned }),
	tokens("lost", func(s *leaselimit.Stats) int64 { return s.TokensLost }),
	tokens("stranded", func(s *leaselimit.Stats) int64 { return s.TokensStranded }),
	counter("waiter_tokens_total", "Tokens granted to calls that waited for the store, beside those of leases.",
		func(s *leaselimit.Stats) int64 { return s.TokensWaiters }),
	gauge("lease_tokens_held", "Tokens in leases now.",
		func(s *leaselimit.Stats) float64 { return float64(s.TokensHeld) }),

	gauge("tenants", "Tenants in memory.",
		func(s *leaselimit.Stats) float64 { return float64(s.Tenants) }),
	counter("tenants_evicted_total", "Tenants that made room for others.",
		func(s *leaselimit.Stats) int64 { return s.Evicted }),
	counter("tenants_idle_total", "Tenants that left memory because they were not called.",
		func(s *leaselimit.Stats) int64 { return s.Idle }),
	gauge("overshoot_ratio", "Most that this replica alone admitted above capacity and refill, of the capacity.",
		func(s *leaselimit.Stats) float64 { return s.Overshoot }),
	gauge("overshoot_bound_ratio", "The budget for all replicas together, of the capacity.",
		func(s *leaselimit.Stats) float64 { return s.MaxOvershoot }),
	gauge("degraded", "1 while the failure policy decides.",
		func(s *leaselimit.Stats) float64 { return flag(s.Degraded) }),
	gauge("breaker_open", "1 while no call waits for the store.",
		func(s *leaselimit.Stats) float64 { return flag(s.BreakerOpen) }),
	seconds("degraded_seconds_total", "How long no call waited for the store, in all.",
		func(s *leaselimit.Stats) time.Duration { return s.DegradedFor }),
	gauge("clock_lag_seconds", "Furthest that the coarse clock was seen behind.",
		func(s *leaselimit.Stats) float64 { return s.ClockLag.Seconds() }),
	optional(gauge("replicas", "How many replicas share the limits, where it is known.",
		func(s *leaselimit.Stats) float64 { return float64(s.Replicas) }),
		func(s *leaselimit.Stats) bool { return s.Replicas > 0 }),
}

func counter(name, help string, value func(*leaselimit.Stats) int64) count {
	return count{
		name: name, help: help, kind: prometheus.CounterValue,
		value: func(s *leaselimit.Stats) float64 { return float64(value(s)) },
	}
}

func seconds(name, help string, value func(*leaselimit.Stats) time.Duration) count {
	return count{
		name: name, help: help, kind: prometheus.CounterValue,
		value: func(s *leaselimit.Stats) float64 { return value(s).Seconds() },
	}
}

func gauge(name, help string, value func(*leaselimit.Stats) float64) count {
	return count{name: name, help: help, kind: prometheus.GaugeValue, value: value}
}

func optional(c count, known func(*leaselimit.Stats) bool) count {
	c.known = known
	return c
}

func allowed(source string, value func(*leaselimit.Stats) int64) count {
	return decided(source, "allowed", value)
}

func refused(source string, value func(*leaselimit.Stats) int64) count {
	return decided(source, "refused", value)
}

func decided(source, outcome string, value func(*leaselimit.Stats) int64) count {
	c := counter("decisions_total", "Calls decided, by who decided and how. Refusals that shadow mode let pass are refused.", value)
	c.label, c.values = []string{"source", "outcome"}, []string{source, outcome}
	return c
}

func tokens(fate string, value func(*leaselimit.Stats) int64) count {
	c := counter("lease_tokens_total", "Tokens of leases, by where they went.", value)
	c.label, c.values = []string{"fate"}, []string{fate}
	return c
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
