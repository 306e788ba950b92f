// Package dbtest gives tests real databases: PostgreSQL, and MariaDB or MySQL. Each test gets a database of its own, on a
// server that all tests of the process share. It is started by the first that asks, and ended by [Main].
//
// A server is looked for in this order:
//
//  1. LEASELIMIT_POSTGRES_URL or LEASELIMIT_MYSQL_DSN: a running server, and an account that may create databases;
//  2. the programs of this machine (on PATH, and where Debian puts those of PostgreSQL), with a folder and a port of
//     their own, so that the machine's own servers are not touched. Run as root they become another user;
//  3. Docker, with the image named by LEASELIMIT_POSTGRES_IMAGE (default postgres:17) or LEASELIMIT_MYSQL_IMAGE (default
//     mariadb:11), which is pulled if it is missing. It uses the host's network.
//
// Where there is none the test fails; it is never skipped. provision.sh in this folder installs the programs on Debian.
//
// Nothing is written through to the disk. A server ends when the test process is killed, at once on Linux; a container and
// the folder of a server then stay behind.
package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// startTimeout bounds the making and the start of a server, and what is done for a test. It ends what is stuck; a slow
// machine must not meet it.
const startTimeout = 2 * time.Minute

// Postgres returns the URL of an empty PostgreSQL database, which is dropped when the test ends.
func Postgres(tb testing.TB) string {
	tb.Helper()
	return postgres.database(tb)
}

// MySQL returns the DSN of an empty MariaDB or MySQL database, which is dropped when the test ends.
func MySQL(tb testing.TB) string {
	tb.Helper()
	return mysql.database(tb)
}

// Open returns a pool of connections, closed when the test ends. The driver is "pgx" or "mysql".
func Open(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// Main runs the tests of a package, ends the servers, fails if goroutines are left (unless tests failed already) and exits.
// It is the body of TestMain.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	postgres.stop()
	mysql.stop()
	if code == 0 {
		if err := goleak.Find(opts...); err != nil {
			fmt.Fprintln(os.Stderr, "dbtest: goroutines are left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// database makes a database for one test.
func (s *server) database(tb testing.TB) string {
	tb.Helper()
	dsn, err := s.start()
	if err != nil {
		tb.Fatalf("dbtest: %s: %v", s.name, err)
	}
	name := "leaselimit_test_" + strings.ToLower(rand.Text())
	if err := s.exec(dsn, "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("dbtest: %s: %v", s.name, err)
	}
	tb.Cleanup(func() {
		if err := s.exec(dsn, "DROP DATABASE "+name+s.drop); err != nil {
			tb.Errorf("dbtest: %s: %v", s.name, err)
		}
	})
	named, err := s.inDatabase(dsn, name)
	if err != nil {
		tb.Fatalf("dbtest: %s: %v", s.name, err)
	}
	return named
}

func (s *server) exec(dsn, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	db, err := sql.Open(s.driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}
