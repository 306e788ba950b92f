package sqlquota

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Dialect is a kind of SQL.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = iota // also CockroachDB and others that speak it, but for [Migrations], which were tested on PostgreSQL
	MySQL                     // and MariaDB
)

// String is the name of the dialect, and of its folder in [Migrations].
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "postgres"
	case MySQL:
		return "mysql"
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

// An Arg is what a placeholder of a query stands for.
type Arg uint8

// The arguments of a query.
const (
	Tenant Arg = iota
	Class
)

// An Option changes what [New] makes.
type Option func(*options)

type options struct {
	dialect Dialect
	class   string
	query   string
	args    []Arg
	timeout time.Duration
}

// WithDialect sets the dialect of the default query; default [PostgreSQL].
func WithDialect(d Dialect) Option { return func(o *options) { o.dialect = d } }

// WithClass sets the class whose limits are read; default "default". It is the Class of the limiter.
func WithClass(class string) Option { return func(o *options) { o.class = class } }

// WithTimeout bounds one lookup, the wait for a connection included; default 1s. A shorter deadline of the caller's rules.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithQuery replaces the default query, for a schema of your own. It answers with one row of four columns in this order:
// capacity, refill, the period in milliseconds, and whether the tenant is unlimited, in which case the other three have to
// be NULL. No row is an unknown tenant. args are what its placeholders stand for, in order; default Tenant, Class.
func WithQuery(query string, args ...Arg) Option {
	return func(o *options) {
		o.query = query
		if o.args = args; len(args) == 0 {
			o.args = []Arg{Tenant, Class}
		}
	}
}

func newOptions(opts []Option) (options, error) {
	o := options{class: "default", timeout: time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case o.dialect > MySQL:
		return o, fmt.Errorf("sqlquota: WithDialect is %v, must be PostgreSQL or MySQL", o.dialect)
	case o.class == "":
		return o, errors.New("sqlquota: WithClass is empty, must be a class")
	case o.timeout <= 0:
		return o, fmt.Errorf("sqlquota: WithTimeout is %v, must be positive", o.timeout)
	case slices.ContainsFunc(o.args, func(a Arg) bool { return a > Class }):
		return o, fmt.Errorf("sqlquota: WithQuery: args are %v, must be Tenant or Class", o.args)
	case o.args == nil && o.dialect == PostgreSQL:
		o.query, o.args = postgresQuery, []Arg{Tenant, Class}
	case o.args == nil:
		o.query, o.args = mysqlQuery, []Arg{Class, Class, Tenant}
	case o.query == "":
		return o, errors.New("sqlquota: WithQuery is empty, must be a query")
	}
	return o, nil
}

// An override takes the place of the tier's limit as a whole: a column of one and a column of the other would be a limit
// that nobody has set.
const (
	columns = `
SELECT CASE WHEN o.tenant IS NULL THEN l.capacity  ELSE o.capacity  END,
       CASE WHEN o.tenant IS NULL THEN l.refill    ELSE o.refill    END,
       CASE WHEN o.tenant IS NULL THEN l.period_ms ELSE o.period_ms END,
       CASE WHEN o.tenant IS NULL THEN l.unlimited ELSE o.unlimited END
FROM leaselimit_tenants t
`
	postgresQuery = columns + `
LEFT JOIN leaselimit_tier_limits l ON l.tier = t.tier AND l.class = $2
LEFT JOIN leaselimit_overrides o ON o.tenant = t.tenant AND o.class = $2
WHERE t.tenant = $1`
	mysqlQuery = columns + `
LEFT JOIN leaselimit_tier_limits l ON l.tier = t.tier AND l.class = ?
LEFT JOIN leaselimit_overrides o ON o.tenant = t.tenant AND o.class = ?
WHERE t.tenant = ?`
)
