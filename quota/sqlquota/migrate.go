package sqlquota

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed migrations
var migrations embed.FS

// Migrations are the files of the default schema, in the order of their names, for the tool that you migrate with. Each may
// be run again. 0002_notify.sql of PostgreSQL is needed for push alone.
func Migrations(d Dialect) (fs.FS, error) {
	if d > MySQL {
		return nil, fmt.Errorf("sqlquota: dialect is %v, must be PostgreSQL or MySQL", d)
	}
	return fs.Sub(migrations, "migrations/"+d.String())
}

// Migrate runs the [Migrations], where there is no tool for that. It changes nothing where they have been run.
func Migrate(ctx context.Context, db *sql.DB, d Dialect) error {
	files, err := Migrations(d)
	if err != nil {
		return err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		for _, statement := range split(d, string(text)) {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("sqlquota: migrate: %s: %w", name, err)
			}
		}
	}
	return nil
}

// split is what may be sent at once: PostgreSQL takes a file whole, as one transaction; MySQL one statement.
func split(d Dialect, text string) []string {
	if d == PostgreSQL {
		return []string{text}
	}
	statements := strings.Split(text, ";\n")
	return statements[:len(statements)-1]
}
