package debugpage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/debugpage"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func limiter(t *testing.T, class string) *leaselimit.Limiter {
	t.Helper()
	lim, err := leaselimit.New(membucket.New(), leaselimit.Config{
		Class: class, Limits: quota.Fixed(quota.Limit{Capacity: 10}), LeaseSize: 4, LeaseShare: 1, Replicas: 1,
		StoreTimeout: 10 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lim.Close(context.Background())) })
	return lim
}

func call(t *testing.T, lim *leaselimit.Limiter, tenant string, n int) {
	t.Helper()
	for range n {
		_, err := lim.Allow(t.Context(), tenant)
		require.NoError(t, err)
	}
}

// get asks h; target is a query.
func get(t *testing.T, h http.Handler, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/leaselimit"+target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(b)
}

func report(t *testing.T, h http.Handler, target string) (r debugpage.Report) {
	t.Helper()
	res := get(t, h, target, "Accept", "application/json")
	require.Equal(t, "application/json", res.Header.Get("Content-Type"))
	require.NoError(t, json.NewDecoder(res.Body).Decode(&r))
	return r
}

func TestTheJSONSaysWhatTheLimiterKnows(t *testing.T) {
	lim := limiter(t, "export")
	call(t, lim, "acme", 100)
	call(t, lim, "bolt", 1)
	h := debugpage.Handler(lim, limiter(t, "b"))
	r := report(t, h, "?n=1&tenant=bolt")
	require.Len(t, r.Limiters, 2)
	l := r.Limiters[0]
	assert.Equal(t, "export", l.Class)
	assert.Equal(t, int64(11), l.AllowedSum)
	assert.Equal(t, int64(90), l.RefusedSum)
	assert.InDelta(t, 0.1, l.Bound, 0)
	require.Len(t, l.Busiest, 1, "n")
	assert.Equal(t, "acme", l.Busiest[0].Tenant)
	assert.Equal(t, int64(10), l.Busiest[0].Allowed)
	assert.Equal(t, int64(90), l.Busiest[0].Refused)
	assert.Equal(t, int64(1), l.Busiest[0].Budget)
	require.NotNil(t, l.Found)
	assert.Equal(t, int64(4), l.Found.Held)
	assert.Equal(t, int64(5), l.Found.Level)
	require.Len(t, l.Found.Leases, 1)
	assert.Equal(t, int64(4), l.Found.Leases[0].Left)
	assert.Positive(t, l.Store[0].OK)
	assert.Nil(t, r.Limiters[1].Found)
	assert.Empty(t, r.Limiters[1].Busiest)
}

func TestThePageIsAskedForByParameterOrHeader(t *testing.T) {
	h := debugpage.Handler(limiter(t, "a"))
	for _, tt := range []struct{ target, accept, want string }{
		{"", "", "text/html; charset=utf-8"},
		{"", "*/*", "text/html; charset=utf-8"},
		{"", "text/html,application/json;q=0.9", "text/html; charset=utf-8"},
		{"", "application/json", "application/json"},
		{"?format=json", "text/html", "application/json"},
		{"?format=html", "application/json", "text/html; charset=utf-8"},
	} {
		res := get(t, h, tt.target, "Accept", tt.accept)
		assert.Equal(t, tt.want, res.Header.Get("Content-Type"), tt)
		assert.Equal(t, http.StatusOK, res.StatusCode)
	}
	assert.Equal(t, "5", get(t, h, "?refresh=1").Header.Get("Refresh"))
	assert.Empty(t, get(t, h, "").Header.Get("Refresh"))
}

func TestAnyTenantTextIsSafe(t *testing.T) {
	lim := limiter(t, "a")
	hostile := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'};alert(1)//`, `javascript:alert(1)`,
		`</style><svg onload=alert(1)>`, "\x00\xff\u202Egnp.exe", strings.Repeat("long", 5000), `{{.Rows}}`,
	}
	for _, name := range hostile {
		call(t, lim, name, 2)
	}
	h := debugpage.Handler(lim)
	for _, name := range hostile {
		res := get(t, h, "?tenant="+url.QueryEscape(name))
		text := body(t, res)
		assert.Equal(t, http.StatusOK, res.StatusCode)
		for _, evil := range []string{"<script", "<img", "<svg onload", `href="javascript`} {
			assert.NotContains(t, text, evil)
		}
		assert.Equal(t, 1, strings.Count(text, "</style>"))
		assert.Len(t, report(t, h, "?tenant="+url.QueryEscape(name)).Limiters[0].Busiest, len(hostile))
	}
	assert.Contains(t, body(t, get(t, h, "?tenant=%3Cnobody%3E")), "&lt;nobody&gt;")
}

func TestNothingMayBeLoadedOrChanged(t *testing.T) {
	h := debugpage.Handler(limiter(t, "a"))
	res := get(t, h, "")
	policy := res.Header.Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'; style-src 'sha256-")
	assert.NotContains(t, policy, "unsafe")
	assert.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
	assert.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	assert.Equal(t, "no-referrer", res.Header.Get("Referrer-Policy"))
	text := body(t, res)
	for _, outside := range []string{"http:", "https:", "src=", "<link", "@import", "url(", " style=", "<script"} {
		assert.NotContains(t, text, outside)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
		assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	}
}

func TestRowsAreBounded(t *testing.T) {
	lim := limiter(t, "a")
	for i := range 300 {
		call(t, lim, fmt.Sprint("tenant-", i), 1)
	}
	h := debugpage.Handler(lim)
	assert.Len(t, report(t, h, "").Limiters[0].Busiest, 25)
	assert.Len(t, report(t, h, "?n=200").Limiters[0].Busiest, 200)
	for _, n := range []string{"0", "201", "-1", "x", "99999999999999999999"} {
		assert.Equal(t, http.StatusBadRequest, get(t, h, "?n="+n).StatusCode, n)
	}
}

func Example() {
	lim, err := leaselimit.New(membucket.New(), leaselimit.Config{Limits: quota.Fixed(quota.PerSecond(10, 10))})
	if err != nil {
		panic(err)
	}
	defer lim.Close(context.Background())

	mux := http.NewServeMux()
	mux.Handle("GET /debug/leaselimit", debugpage.Handler(lim)) // behind the same authentication as pprof

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/debug/leaselimit", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}
