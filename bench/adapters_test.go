package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The adapters that docs/http.md shows: one admitted request, and one that is refused before the handler.
func TestAdapters(t *testing.T) {
	for name, app := range map[string]func(limit func(http.Handler) http.Handler, handled *int) http.Handler{
		"chi": func(limit func(http.Handler) http.Handler, handled *int) http.Handler {
			router := chi.NewRouter()
			router.Use(limit)
			router.Get("/", func(w http.ResponseWriter, _ *http.Request) { *handled++; _, _ = io.WriteString(w, "hello") })
			return router
		},
		"echo": func(limit func(http.Handler) http.Handler, handled *int) http.Handler {
			router := echo.New()
			router.Use(echo.WrapMiddleware(limit))
			router.GET("/", func(c echo.Context) error { *handled++; return c.String(http.StatusOK, "hello") })
			return router
		},
		"gin": func(limit func(http.Handler) http.Handler, handled *int) http.Handler {
			gin.SetMode(gin.ReleaseMode)
			router := gin.New()
			router.Use(func(c *gin.Context) {
				limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
				c.Abort() // of no effect once Next has run the handlers
			})
			router.GET("/", func(c *gin.Context) { *handled++; c.String(http.StatusOK, "hello") })
			return router
		},
	} {
		t.Run(name, func(t *testing.T) {
			lim, err := leaselimit.New(membucket.New(), leaselimit.Config{
				Limits: quota.Fixed(quota.PerMinute(1, 1)), StoreTimeout: 10 * time.Second,
			})
			require.NoError(t, err)
			defer lim.Close(t.Context())
			handled := 0
			srv := httptest.NewServer(app(httplimit.Middleware(lim, func(*http.Request) (string, error) { return "acme", nil }), &handled))
			defer srv.Close()
			get := func() (*http.Response, string) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/", nil)
				require.NoError(t, err)
				resp, err := srv.Client().Do(req)
				require.NoError(t, err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				return resp, string(body)
			}
			resp, body := get()
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Equal(t, "hello", body)
			assert.Equal(t, `"default";r=0;t=60`, resp.Header.Get("RateLimit"))
			resp, body = get()
			assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
			wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			require.NoError(t, err)
			assert.InDelta(t, 55, wait, 5, "a minute, less what the machine took")
			assert.Contains(t, body, "quota-exceeded")
			assert.Equal(t, 1, handled)
		})
	}
}
