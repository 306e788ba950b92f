package leaselimit

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// Config is what a [Limiter] is made of. The zero value of every field but Limits is its default.
type Config struct {
	// Class names the limit among those of a tenant, each with a bucket of its own: 1 to 128 letters, digits, '-', '_'
	// or '.'; default "default". All replicas of a limit must agree on it, and limiters with different limits must not
	// share one.
	Class string

	// Limits answers with the limit of a tenant, for every call. Required. It has to answer from memory: put one that asks a
	// database, or anything else that takes time, behind a [quota.Cache].
	Limits quota.Source

	// MaxOvershoot is the budget, as a fraction of the capacity, 0 to 1; default 0.10. Over all replicas and in every
	// window of length t, admitted <= capacity + refill*t + budget. A larger one lets the bucket refill while leases are
	// out: fewer refusals near the limit, at the price of the overshoot. For 0 set Exact.
	MaxOvershoot float64

	// Exact sets the budget to 0: no overshoot. It excludes MaxOvershoot.
	Exact bool

	// LeaseShare is the most of the capacity that may be leased out at once over all replicas, above 0 to 1; default
	// 0.25. A larger one asks Redis less. Up to LeaseShare*capacity - budget of a burst on one replica may be refused
	// while others hold leases.
	LeaseShare float64

	// LeaseTTL is the trust window: how long a lease may be spent, and after how long (twice it at most) the tokens of a
	// crashed replica come back. 10ms to 1h; default 30s. Replicas should agree; the longest rules.
	LeaseTTL time.Duration

	// LeaseSize fixes how many tokens each draw leases beside what the calls that wait for it need (the surplus); 0, the
	// default, adapts it to the demand.
	LeaseSize int64

	// MaxHold is the most surplus, in tokens, that this replica holds for one tenant; default max(1, capacity/(2*replicas)).
	// It never limits callers that wait. At least LeaseSize.
	MaxHold int64

	// StoreTimeout is how long a call waits for the store before OnFailure decides; default 50ms. Below LeaseTTL. After 3
	// failures in a row, or 1 s of them, no call waits until the store answers a probe within it. Longer than it takes to make a
	// connection, some 6 round trips to Redis, or a Redis that answers may look away for ever.
	StoreTimeout time.Duration

	// OnFailure decides when the store does not; default FailLocal.
	OnFailure FailurePolicy

	// Replicas is how many replicas share the limits, as a hint for sizes and for the share of FailLocal; it never
	// matters to the bound. 0, the default, has the store count those in use, with one small write every 3 s of each that
	// draws; until it has been asked twice, or where it cannot, it is taken for 4. The last count holds in an outage.
	Replicas int

	// MaxTenants is the most tenants that are kept in memory, the least used making room; default 100_000. A tenant that
	// made room loses nothing but a round trip: its leases are returned and its bucket is in the store. Tenants that are not
	// called for one to four LeaseTTL leave memory by themselves.
	MaxTenants int

	// Shadow lets every call pass: refusals are decided and counted, and marked Shadowed.
	Shadow bool

	// CoarseClock is the resolution of a clock that is read from memory for every spend and every refusal, which is quicker.
	// Twice the resolution is taken off the trust window. 0, the default, reads the machine's clock. 50us to LeaseTTL/100. It costs a goroutine until
	// Close. Where that goroutine does not get to run in time (Stats.ClockLag), up to 64 tokens of a lease may be spent
	// past its window, and calls may be refused for too long, by as much as the clock is further behind than ever before.
	CoarseClock time.Duration

	// Logger gets one line for each change of state; default slog.Default().
	Logger *slog.Logger

	// Observer, if set, is told what happens off the hot path: calls to the store, evictions, changes of state. It must not be
	// changed after New.
	Observer *Observer
}

// FailurePolicy decides on calls while the store does not answer. Leases in hand are spent under every policy, and every
// decision by policy is marked (Decision.Degraded) and counted.
type FailurePolicy uint8

// The failure policies.
const (
	// FailLocal admits from a bucket of this replica's share of the limit, 1/Replicas (1/4 if unknown), at least a
	// capacity of one token. What this replica admitted before is taken out of it. Where calls were refused just before the
	// outage, its rate is no more than what this replica was then granted, or a quarter of the share if that is more.
	FailLocal FailurePolicy = iota
	// FailOpen admits everything.
	FailOpen
	// FailClosed refuses everything.
	FailClosed
)

// String is the policy's name, as in logs and metrics.
func (p FailurePolicy) String() string {
	switch p {
	case FailLocal:
		return "local"
	case FailOpen:
		return "open"
	case FailClosed:
		return "closed"
	}
	return fmt.Sprintf("FailurePolicy(%d)", uint8(p))
}

// The defaults of Config.
const (
	defaultClass        = "default"
	defaultMaxOvershoot = 0.10
	defaultLeaseShare   = 0.25
	defaultLeaseTTL     = 30 * time.Second
	defaultStoreTimeout = 50 * time.Millisecond
	defaultMaxTenants   = 100_000
)

// withDefaults returns c with every default set.
func (c Config) withDefaults() Config {
	setDefault(&c.Class, defaultClass)
	if !c.Exact {
		setDefault(&c.MaxOvershoot, defaultMaxOvershoot)
	}
	setDefault(&c.LeaseShare, defaultLeaseShare)
	setDefault(&c.LeaseTTL, defaultLeaseTTL)
	setDefault(&c.StoreTimeout, min(defaultStoreTimeout, c.LeaseTTL/2))
	setDefault(&c.MaxTenants, defaultMaxTenants)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate reports everything that is wrong with c, whose defaults are set.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, field string, value any, bound string) {
		if !ok {
			errs = append(errs, fmt.Errorf("leaselimit: Config.%s is %v, must be %s", field, value, bound))
		}
	}
	check(validClass(c.Class), "Class", fmt.Sprintf("%q", c.Class), "1 to 128 letters, digits, '-', '_' or '.'")
	check(c.Limits != nil, "Limits", "nil", "set")
	check(c.MaxOvershoot >= 0 && c.MaxOvershoot <= 1, "MaxOvershoot", c.MaxOvershoot, "0 to 1")
	check(!c.Exact || c.MaxOvershoot == 0, "MaxOvershoot", c.MaxOvershoot, "0 where Exact is set")
	check(c.LeaseShare > 0 && c.LeaseShare <= 1, "LeaseShare", c.LeaseShare, "above 0 and at most 1")
	check(c.LeaseTTL >= 10*time.Millisecond && c.LeaseTTL <= time.Hour, "LeaseTTL", c.LeaseTTL, "10ms to 1h")
	check(c.LeaseSize >= 0, "LeaseSize", c.LeaseSize, "0 or more")
	check(c.MaxHold >= 0, "MaxHold", c.MaxHold, "0 or more")
	check(c.MaxHold == 0 || c.MaxHold >= c.LeaseSize, "MaxHold", c.MaxHold, "0 or at least LeaseSize")
	check(c.StoreTimeout > 0 && c.StoreTimeout < c.LeaseTTL, "StoreTimeout", c.StoreTimeout, "above 0 and below LeaseTTL")
	check(c.OnFailure <= FailClosed, "OnFailure", c.OnFailure, "FailLocal, FailOpen or FailClosed")
	check(c.Replicas >= 0, "Replicas", c.Replicas, "0 or more")
	check(c.MaxTenants >= 1, "MaxTenants", c.MaxTenants, "1 or more")
	check(c.CoarseClock == 0 || (c.CoarseClock >= 50*time.Microsecond && c.CoarseClock <= c.LeaseTTL/100),
		"CoarseClock", c.CoarseClock, "0, or 50us to LeaseTTL/100")
	if o := c.Observer; o.samples() {
		check(o.Sample >= 1, "Observer.Sample", o.Sample, "1 or more where Observer.Decided is set")
	}
	if c.Limits != nil {
		if l, ok := quota.FixedLimit(c.Limits); ok {
			if err := l.Validate(); err != nil {
				errs = append(errs, fmt.Errorf("leaselimit: Config.Limits: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

func validClass(s string) bool {
	other := func(r rune) bool {
		alnum := (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9')
		return !alnum && !strings.ContainsRune("-_.", r)
	}
	return s != "" && len(s) <= 128 && strings.IndexFunc(s, other) < 0
}

func (c *Config) options() lease.Options {
	return lease.Options{
		Class:        c.Class,
		MaxOvershoot: c.MaxOvershoot,
		LeaseShare:   c.LeaseShare,
		TTL:          c.LeaseTTL,
		LeaseSize:    c.LeaseSize,
		MaxHold:      c.MaxHold,
		Timeout:      c.StoreTimeout,
		Replicas:     c.Replicas,
		Coarse:       c.CoarseClock,
		Hooks:        c.Observer.hooks(),
	}
}
