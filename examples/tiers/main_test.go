package main

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/dbtest"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	patience = 20 * time.Second // a busy machine
	dbtest.Main(m)
}

func call(t *testing.T, h http.Handler, header, value string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set(header, value)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// spend is how many calls of a burst pass.
func spend(t *testing.T, h http.Handler, key string, calls int) (passed int) {
	t.Helper()
	for range calls {
		switch w := call(t, h, "Authorization", "Bearer "+key); w.Code {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
			after, err := strconv.Atoi(w.Header().Get("Retry-After"))
			require.NoError(t, err)
			require.Positive(t, after)
		default:
			require.Fail(t, "unexpected answer", "%d %s", w.Code, w.Body)
		}
	}
	return passed
}

func TestService(t *testing.T) {
	for name, at := range map[string]func() (redisURL, postgresURL string){
		"embedded": func() (string, string) { return "", "" },
		"real":     func() (string, string) { return "redis://" + redistest.Start(t).Addr(), dbtest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			redisURL, postgresURL := at()
			h, end, err := service(t.Context(), redisURL, postgresURL)
			require.NoError(t, err)
			defer end()
			start := time.Now()
			small := spend(t, h, "key-small", 60)
			bound := 20 + 2*time.Since(start).Seconds() + 2 // capacity, refill, budget
			assert.GreaterOrEqual(t, small, 20)
			assert.LessOrEqual(t, float64(small), bound)
			assert.Equal(t, 100, spend(t, h, "key-bursty", 100), "each has its own tier")
			assert.Equal(t, 200, spend(t, h, "key-large", 200))

			assert.Equal(t, http.StatusForbidden, call(t, h, "Authorization", "Bearer key-new").Code)
			assert.Equal(t, http.StatusUnauthorized, call(t, h, "Authorization", "Bearer nonsense").Code)
			assert.Equal(t, http.StatusUnauthorized, call(t, h, "X-Tenant", "large-co").Code, "a client cannot name itself")
			if postgresURL != "" {
				changes(t, h, dbtest.Open(t, "pgx", postgresURL))
			}
		})
	}
}

// A sold plan is in force while the service runs.
func changes(t *testing.T, h http.Handler, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `INSERT INTO leaselimit_tenants (tenant, tier) VALUES ('new-co', 'pro')`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return call(t, h, "Authorization", "Bearer key-new").Code == http.StatusOK
	}, time.Minute, time.Millisecond)
}

func TestRun(t *testing.T) {
	require.Error(t, run(t.Context(), "localhost:0", "not a URL", ""))
	require.Error(t, run(t.Context(), "localhost:0", "", "postgres://127.0.0.1:1/nowhere"))
	require.Error(t, run(t.Context(), "localhost:-1", "", ""))
}
