// Package sqlquota is a [quota.Source] that reads limits from a SQL database: each tenant's exception, or else the limit of
// its tier. It knows PostgreSQL, and MySQL or MariaDB, brings a schema ([Migrations]) and takes queries of your own. The
// driver is yours to import.
//
// It asks the database for every lookup. Put it behind [quota.NewCache].
//
// What a row does not say plainly is an error, never "unlimited": a NULL, a limit that does not validate, a number that
// does not fit, a tenant whose tier has no limit for the class, more than one row.
package sqlquota

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/leaselimit/leaselimit/quota"
)

// source is the quota.Source of New.
type source struct {
	db      *sql.DB
	query   string
	args    []Arg
	class   string
	timeout time.Duration
}

// New returns a source that reads from db, which stays the caller's. It asks nothing yet: a database that is away is met by
// the first lookup. Errors name the option and its bound.
//
// A lookup is one query. It fails with [quota.ErrUnknownTenant] if that has no row, or the tenant is no text to the database,
// with [quota.ErrInvalid] if the row is no limit, and with the error of the database otherwise.
func New(db *sql.DB, opts ...Option) (quota.Source, error) {
	if db == nil {
		return nil, errors.New("sqlquota: db is nil")
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	return &source{db: db, query: o.query, args: o.args, class: o.class, timeout: o.timeout}, nil
}

// Limit reads the limit of tenant.
func (s *source) Limit(ctx context.Context, tenant string) (quota.Limit, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	// Not prepared here: a statement of PostgreSQL fails for good once a column's type has changed. A driver that prepares by itself
	// notices, and can be told not to.
	rows, err := s.db.QueryContext(ctx, s.query, s.bind(tenant)...)
	if err != nil {
		return quota.Limit{}, fmt.Errorf("sqlquota: tenant %q: %w", tenant, explain(err))
	}
	limit, err := read(rows)
	if err := errors.Join(err, rows.Close()); err != nil {
		return quota.Limit{}, fmt.Errorf("sqlquota: tenant %q, class %q: %w", tenant, s.class, explain(err))
	}
	return limit, nil
}

// notText is the SQLSTATE for text that the encoding of the database does not have, such as invalid UTF-8 or a NUL.
const notText = "22021"

// explain says of a name that no row can have that it is unknown: taken for a failure, it would be asked for again and again.
func explain(err error) error {
	type stated interface {
		error
		SQLState() string
	}
	if e, ok := errors.AsType[stated](err); ok && e.SQLState() == notText {
		return fmt.Errorf("%w: %w", quota.ErrUnknownTenant, err)
	}
	return err
}

func (s *source) bind(tenant string) []any {
	bound := make([]any, len(s.args))
	for i, arg := range s.args {
		if bound[i] = any(tenant); arg == Class {
			bound[i] = s.class
		}
	}
	return bound
}
