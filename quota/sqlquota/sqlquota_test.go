package sqlquota_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/dbtest"
	"github.com/leaselimit/leaselimit/internal/faultproxy"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/quota/sqlquota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience is a timeout that a busy machine does not reach.
const patience = time.Minute

// each runs a test on an empty database of each dialect.
func each(t *testing.T, test func(t *testing.T, d sqlquota.Dialect, db *sql.DB)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { test(t, sqlquota.PostgreSQL, dbtest.Open(t, "pgx", dbtest.Postgres(t))) })
	t.Run("mysql", func(t *testing.T) { test(t, sqlquota.MySQL, dbtest.Open(t, "mysql", dbtest.MySQL(t))) })
}

// rig runs a test on the default schema, with two tiers and three tenants in it.
func rig(t *testing.T, test func(t *testing.T, d sqlquota.Dialect, db *sql.DB)) {
	t.Helper()
	each(t, func(t *testing.T, d sqlquota.Dialect, db *sql.DB) {
		require.NoError(t, sqlquota.Migrate(t.Context(), db, d))
		do(t, db,
			`INSERT INTO leaselimit_tiers (tier) VALUES ('free'), ('pro')`,
			`INSERT INTO leaselimit_tier_limits (tier, class, capacity, refill, period_ms)
				VALUES ('free', 'default', 20, 2, 1000), ('pro', 'default', 200, 50, 1000), ('pro', 'export', 1, 1, 60000)`,
			`INSERT INTO leaselimit_tenants (tenant, tier) VALUES ('small', 'free'), ('big', 'pro'), ('own', 'pro')`,
			`INSERT INTO leaselimit_overrides (tenant, class, capacity, refill, period_ms, reason)
				VALUES ('own', 'default', 7, 3, 500, 'what sales has promised')`)
		test(t, d, db)
	})
}

func do(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
}

func newSource(t *testing.T, db *sql.DB, opts ...sqlquota.Option) quota.Source {
	t.Helper()
	src, err := sqlquota.New(db, append([]sqlquota.Option{sqlquota.WithTimeout(patience)}, opts...)...)
	require.NoError(t, err)
	return src
}

func TestTiersAndOverrides(t *testing.T) {
	rig(t, func(t *testing.T, d sqlquota.Dialect, db *sql.DB) {
		src := newSource(t, db, sqlquota.WithDialect(d))
		export := newSource(t, db, sqlquota.WithDialect(d), sqlquota.WithClass("export"))
		for _, tt := range []struct {
			src    quota.Source
			tenant string
			want   quota.Limit
		}{
			{src, "small", quota.PerSecond(2, 20)},
			{src, "big", quota.PerSecond(50, 200)},
			{src, "own", quota.Limit{Capacity: 7, Refill: 3, Per: 500 * time.Millisecond}},
			{export, "big", quota.PerMinute(1, 1)},
			{export, "own", quota.PerMinute(1, 1)}, // its override is of another class
		} {
			got, err := tt.src.Limit(t.Context(), tt.tenant)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got, tt.tenant)
		}
		_, err := export.Limit(t.Context(), "small")
		require.ErrorIs(t, err, quota.ErrInvalid)
		require.ErrorContains(t, err, `tenant "small", class "export"`)

		do(t, db, `UPDATE leaselimit_tenants SET tier = 'pro' WHERE tenant = 'small'`,
			`DELETE FROM leaselimit_overrides WHERE tenant = 'own'`,
			`INSERT INTO leaselimit_overrides (tenant, class, unlimited) VALUES ('big', 'export', true)`,
			`INSERT INTO leaselimit_overrides (tenant, capacity, refill, period_ms) VALUES ('big', 0, 0, 1000)`)
		for tenant, want := range map[string]quota.Limit{
			"small": quota.PerSecond(50, 200), "own": quota.PerSecond(50, 200), "big": quota.PerSecond(0, 0),
		} {
			got, err := src.Limit(t.Context(), tenant)
			require.NoError(t, err)
			assert.Equal(t, want, got, tenant)
		}
		got, err := export.Limit(t.Context(), "big")
		require.NoError(t, err)
		assert.True(t, got.IsUnlimited())
	})
}

// Names that are nearly a tenant's are not its name.
func TestUnknownTenants(t *testing.T) {
	rig(t, func(t *testing.T, d sqlquota.Dialect, db *sql.DB) {
		src := newSource(t, db, sqlquota.WithDialect(d))
		for _, tenant := range []string{
			"nobody", "\xff", "a\x00b", "Small", "SMALL", "small ", " small", "smäll", "small%", "' OR '1'='1", "", strings.Repeat("x", 10_000),
		} {
			limit, err := src.Limit(t.Context(), tenant)
			require.ErrorIs(t, err, quota.ErrUnknownTenant, "%q", tenant)
			require.NotErrorIs(t, err, quota.ErrInvalid)
			require.Equal(t, quota.Limit{}, limit)
		}
		do(t, db, `INSERT INTO leaselimit_tenants (tenant, tier) VALUES ('Small', 'pro')`)
		got, err := src.Limit(t.Context(), "Small")
		require.NoError(t, err)
		assert.Equal(t, quota.PerSecond(50, 200), got)
	})
}

// AV3, QC16: whatever a query of one's own answers with, nothing but the word makes unlimited.
func TestAV3_BadRows(t *testing.T) {
	each(t, func(t *testing.T, d sqlquota.Dialect, db *sql.DB) {
		for row, wrong := range map[string]string{
			"NULL, NULL, NULL, NULL":                                 "the tier has none",
			"NULL, NULL, NULL, false":                                "capacity is NULL",
			"NULL, 1, 1000, false":                                   "capacity is NULL",
			"10, NULL, 1000, false":                                  "refill is NULL",
			"10, 1, NULL, false":                                     "period_ms is NULL",
			"10, 1, 1000, NULL":                                      "unlimited is NULL",
			"10, 1, 1000, true":                                      "unlimited is true",
			"10, NULL, NULL, true":                                   "unlimited is true",
			"10, 1, 0, false":                                        "period_ms is 0",
			"10, 0, 0, false":                                        "period_ms is 0",
			"10, 1, -1000, false":                                    "period_ms is -1000",
			"-1, 1, 1000, false":                                     "Capacity is -1",
			"10, -1, 1000, false":                                    "Refill is -1",
			"9007199254740992, 1, 1000, false":                       "Capacity is",
			"9223372036854775807, 9223372036854775807, 1, false":     "Capacity is",
			"10, 1, 9223372036855, false":                            "period_ms is", // times 1e6 it is above an int64
			"10, 1, 9223372036854775807, false":                      "period_ms is",
			"10, 1, 18446744073710, false":                           "period_ms is", // and this would be 448384 ns
			"99999999999999999999, 1, 1000, false":                   "out of range",
			"'ten', 1, 1000, false":                                  "Scan",
			"1.5, 1, 1000, false":                                    "Scan",
			"10, 1, 1000, 'perhaps'":                                 "Scan",
			"10, 1, 1000":                                            "expected 3",
			"10, 1, 1000, false UNION ALL SELECT 20, 1, 1000, false": "more than one row",
			"NULL, NULL, NULL, true UNION ALL SELECT NULL, NULL, NULL, true": "more than one row",
		} {
			query := "SELECT " + row + " WHERE $1::text <> ''" // every parameter has to be used
			if d == sqlquota.MySQL {
				query = "SELECT " + row + " FROM DUAL WHERE ? <> ''"
			}
			limit, err := newSource(t, db, sqlquota.WithQuery(query, sqlquota.Tenant)).Limit(t.Context(), "acme")
			require.ErrorIs(t, err, quota.ErrInvalid, row)
			require.ErrorContains(t, err, wrong, row)
			require.Equal(t, quota.Limit{}, limit, row)
		}
	})
}

// The schema itself holds no such row.
func TestSchemaRefusesBadRows(t *testing.T) {
	rig(t, func(t *testing.T, _ sqlquota.Dialect, db *sql.DB) {
		for _, values := range []string{
			"NULL, 1, 1000, false", "10, NULL, 1000, false", "10, 1, NULL, false", "NULL, NULL, NULL, false",
			"-1, 1, 1000, false", "10, -1, 1000, false", "10, 1, 0, false", "10, 1, -1, false",
			"9007199254740992, 1, 1000, false", "10, 1, 9223372036855, false",
			"10, 1, 1000, true", "10, NULL, NULL, true", "NULL, NULL, NULL, NULL",
		} {
			for _, insert := range []string{
				`INSERT INTO leaselimit_overrides (tenant, class, capacity, refill, period_ms, unlimited) VALUES ('small', 'x', %s)`,
				`INSERT INTO leaselimit_tier_limits (tier, class, capacity, refill, period_ms, unlimited) VALUES ('free', 'x', %s)`,
			} {
				_, err := db.ExecContext(t.Context(), fmt.Sprintf(insert, values))
				assert.Error(t, err, values)
			}
		}
		_, err := db.ExecContext(t.Context(), `INSERT INTO leaselimit_tenants (tenant, tier) VALUES ('x', 'no such tier')`)
		require.Error(t, err)
	})
}

func TestMigrateAgainChangesNothing(t *testing.T) {
	rig(t, func(t *testing.T, d sqlquota.Dialect, db *sql.DB) {
		require.NoError(t, sqlquota.Migrate(t.Context(), db, d))
		got, err := newSource(t, db, sqlquota.WithDialect(d)).Limit(t.Context(), "small")
		require.NoError(t, err)
		assert.Equal(t, quota.PerSecond(2, 20), got)
	})
}

func TestAuditColumns(t *testing.T) {
	rig(t, func(t *testing.T, _ sqlquota.Dialect, db *sql.DB) {
		do(t, db, `UPDATE leaselimit_overrides SET capacity = 8, updated_by = 'sales' WHERE tenant = 'own'`)
		var by string
		var later bool
		require.NoError(t, db.QueryRowContext(t.Context(),
			`SELECT updated_by, updated_at > created_at FROM leaselimit_overrides WHERE tenant = 'own'`).Scan(&by, &later))
		assert.Equal(t, "sales", by)
		assert.True(t, later)
	})
}

func TestQueryOfOnesOwn(t *testing.T) {
	each(t, func(t *testing.T, d sqlquota.Dialect, db *sql.DB) {
		do(t, db, `CREATE TABLE plans (customer varchar(20), what varchar(20), burst int, rate int)`,
			`INSERT INTO plans VALUES ('acme', 'default', 10, 5), ('acme', 'export', 1, 0)`)
		query := `SELECT burst, rate, 1000, false FROM plans WHERE what = ? AND customer = ?`
		if d == sqlquota.PostgreSQL {
			query = `SELECT burst, rate, 1000, false FROM plans WHERE what = $1 AND customer = $2`
		}
		own := sqlquota.WithQuery(query, sqlquota.Class, sqlquota.Tenant)
		for class, want := range map[string]quota.Limit{"default": quota.PerSecond(5, 10), "export": quota.PerSecond(0, 1)} {
			got, err := newSource(t, db, own, sqlquota.WithClass(class)).Limit(t.Context(), "acme")
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
	})
}

// The first lookup after a migration may find a plan of before, the next ones do not.
func TestAColumnMayChangeItsType(t *testing.T) {
	each(t, func(t *testing.T, d sqlquota.Dialect, db *sql.DB) {
		do(t, db, `CREATE TABLE plans (customer varchar(20), capacity int)`, `INSERT INTO plans VALUES ('acme', 10)`)
		query, alter := `SELECT capacity, 1, 1000, false FROM plans WHERE customer = $1`, `ALTER TABLE plans ALTER COLUMN capacity TYPE bigint`
		if d == sqlquota.MySQL {
			query, alter = `SELECT capacity, 1, 1000, false FROM plans WHERE customer = ?`, `ALTER TABLE plans MODIFY capacity bigint`
		}
		db.SetMaxOpenConns(1)
		src := newSource(t, db, sqlquota.WithQuery(query, sqlquota.Tenant))
		_, err := src.Limit(t.Context(), "acme")
		require.NoError(t, err)
		do(t, db, alter)
		_, _ = src.Limit(t.Context(), "acme")
		limit, err := src.Limit(t.Context(), "acme")
		require.NoError(t, err)
		assert.Equal(t, quota.PerSecond(1, 10), limit)
	})
}

// A database that hangs costs a lookup its timeout; one that is away costs an error; neither is an unknown tenant. When it is
// back so are the limits.
func TestDatabaseAway(t *testing.T) {
	at, err := url.Parse(dbtest.Postgres(t))
	require.NoError(t, err)
	do(t, dbtest.Open(t, "pgx", at.String()), `CREATE TABLE plans (capacity int)`, `INSERT INTO plans VALUES (10)`)
	proxy := faultproxy.New(t, at.Host)
	at.Host = proxy.Addr()
	src, err := sqlquota.New(dbtest.Open(t, "pgx", at.String()), sqlquota.WithTimeout(time.Second/2),
		sqlquota.WithQuery(`SELECT capacity, 1, 1000, false FROM plans WHERE $1::text <> ''`, sqlquota.Tenant))
	require.NoError(t, err)
	fails := func(target error) {
		limit, err := src.Limit(t.Context(), "acme")
		require.Error(t, err)
		if target != nil {
			require.ErrorIs(t, err, target)
		}
		require.NotErrorIs(t, err, quota.ErrUnknownTenant)
		require.NotErrorIs(t, err, quota.ErrInvalid)
		require.Equal(t, quota.Limit{}, limit)
	}
	works := func() {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			limit, err := src.Limit(t.Context(), "acme")
			assert.NoError(c, err)
			assert.Equal(c, quota.PerSecond(1, 10), limit)
		}, patience, 10*time.Millisecond)
	}
	proxy.Refuse(true)
	fails(nil) // the query is not even prepared
	proxy.Refuse(false)
	works()
	proxy.DropReplies(true)
	fails(context.DeadlineExceeded)
	proxy.DropReplies(false)
	works()
	proxy.Refuse(true)
	proxy.CloseAll()
	fails(nil)
	proxy.Refuse(false)
	works()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = src.Limit(ctx, "acme")
	require.ErrorIs(t, err, context.Canceled)
}

func TestOptions(t *testing.T) {
	db := dbtest.Open(t, "pgx", "postgres://127.0.0.1:1/nowhere") // New asks nothing
	for wrong, opt := range map[string]sqlquota.Option{
		"WithDialect is Dialect(7)": sqlquota.WithDialect(7),
		"WithClass is empty":        sqlquota.WithClass(""),
		"WithTimeout is 0s":         sqlquota.WithTimeout(0),
		"WithQuery is empty":        sqlquota.WithQuery(""),
		"WithQuery: args are [9]":   sqlquota.WithQuery("SELECT 1", 9),
	} {
		_, err := sqlquota.New(db, opt)
		require.ErrorContains(t, err, wrong)
		require.ErrorContains(t, err, "must be")
	}
	_, err := sqlquota.New(nil)
	require.ErrorContains(t, err, "db is nil")
	_, err = sqlquota.New(db)
	require.NoError(t, err)
	_, err = sqlquota.Migrations(7)
	require.ErrorContains(t, err, "must be PostgreSQL or MySQL")
}
