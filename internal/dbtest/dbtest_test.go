package dbtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

func TestDatabases(t *testing.T) {
	for driver, database := range map[string]func(testing.TB) string{"pgx": Postgres, "mysql": MySQL} {
		t.Run(driver, func(t *testing.T) {
			dsn := database(t)
			assert.NotEqual(t, dsn, database(t), "each has its own")
			db := Open(t, driver, dsn)
			_, err := db.ExecContext(t.Context(), "CREATE TABLE t (n int)")
			require.NoError(t, err)
			_, err = Open(t, driver, database(t)).ExecContext(t.Context(), "SELECT n FROM t")
			require.Error(t, err, "and sees nothing of the others")
		})
	}
}

// A server that is ended leaves no folder and no process; the next test gets another.
func TestStop(t *testing.T) {
	for name, s := range map[string]*server{"postgres": postgres, "mysql": mysql} {
		t.Run(name, func(t *testing.T) {
			if os.Getenv(s.env) != "" {
				return // it is not ours to end
			}
			_, err := s.start()
			require.NoError(t, err)
			proc, dir := s.mu.proc, s.mu.dir
			s.stop()
			<-proc.Done
			assert.NoDirExists(t, dir)
			_, err = s.start()
			require.NoError(t, err)
		})
	}
}
