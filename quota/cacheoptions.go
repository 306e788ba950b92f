package quota

import (
	"fmt"
	"log/slog"
	"time"
)

// CacheOptions are what a [Cache] is made of. The zero value of every field is its default.
type CacheOptions struct {
	// TTL is the age at which an answer is looked up again; default 45s, 30s to 60s are sensible. The lookup of each tenant
	// is moved ahead by up to a fifth of it, so that tenants seen together do not stay together. At least 10ms.
	TTL time.Duration

	// MaxStale is the age up to which an answer is served while lookups fail, or before the next one has come; default 1h.
	// At least TTL. A longer one outlasts longer outages of the source; a shorter one forgets sooner who does not call.
	MaxStale time.Duration

	// Timeout bounds one lookup, and the wait of a call for it; default 1s. Only tenants never seen (or not for MaxStale)
	// wait.
	Timeout time.Duration

	// Default is the limit of unknown tenants, and of those whose lookup failed with no good answer to keep. nil, the
	// default, gives them an error instead.
	Default *Limit

	// MaxTenants is the most tenants kept in memory, the least used making room; default 100_000. A tenant that made room
	// is one never seen: it waits for a lookup, and has no last good answer if that fails.
	MaxTenants int

	// MaxLookups is the most lookups under way at a time, over all tenants; default 8. Others queue, in order; calls that
	// wait take turns with refreshes.
	MaxLookups int

	// Backoff is how long a tenant's failed lookup is not repeated; default 1s, jittered. It doubles with each failure in a
	// row, up to TTL. At most TTL.
	Backoff time.Duration

	// Logger gets a line when the source begins to fail and when it answers again, and at most one a minute about an
	// invalid limit; default slog.Default().
	Logger *slog.Logger
}

func (o CacheOptions) withDefaults() CacheOptions {
	set(&o.TTL, 45*time.Second)
	set(&o.MaxStale, max(time.Hour, o.TTL))
	set(&o.Timeout, time.Second)
	set(&o.MaxTenants, 100_000)
	set(&o.MaxLookups, 8)
	set(&o.Backoff, min(time.Second, o.TTL))
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// maxQueue bounds each queue of lookups. A burst of new tenants has to find room in it, even where few are kept.
func (o CacheOptions) maxQueue() int { return max(o.MaxTenants, 1000) }

// pause is how long a lookup that has failed so many times in a row is not repeated.
func (o CacheOptions) pause(fails int) time.Duration {
	if n := fails - 1; o.Backoff <= o.TTL>>n { // or doubling it as often would be more than TTL, and might not fit
		return o.Backoff << n
	}
	return o.TTL
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

const (
	minTTL     = 10 * time.Millisecond
	maxTTL     = 365 * 24 * time.Hour
	maxTenants = 1 << 26
)

func (o CacheOptions) validate() error {
	switch {
	case o.TTL < minTTL || o.TTL > maxTTL:
		return fmt.Errorf("quota: TTL is %v, must be %v to %v", o.TTL, minTTL, maxTTL)
	case o.MaxStale < o.TTL || o.MaxStale > maxTTL:
		return fmt.Errorf("quota: MaxStale is %v, must be TTL (%v) to %v", o.MaxStale, o.TTL, maxTTL)
	case o.Timeout < 0:
		return fmt.Errorf("quota: Timeout is %v, must be positive", o.Timeout)
	case o.MaxTenants < 1 || o.MaxTenants > maxTenants:
		return fmt.Errorf("quota: MaxTenants is %d, must be 1 to %d", o.MaxTenants, maxTenants)
	case o.MaxLookups < 1:
		return fmt.Errorf("quota: MaxLookups is %d, must be 1 or more", o.MaxLookups)
	case o.Backoff < 0 || o.Backoff > o.TTL:
		return fmt.Errorf("quota: Backoff is %v, must be positive and at most TTL (%v)", o.Backoff, o.TTL)
	}
	if o.Default != nil {
		if err := o.Default.Validate(); err != nil {
			return fmt.Errorf("quota: Default: %w", err)
		}
	}
	return nil
}
