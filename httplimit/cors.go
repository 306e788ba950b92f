package httplimit

import (
	"net/http"
	"slices"
	"strings"
)

const fieldExpose = "Access-Control-Expose-Headers"

// ExposedHeaders are the header fields that a browser has to be told of before it shows them to scripts of another origin: a
// value for Access-Control-Expose-Headers, as CORS middlewares take it.
func ExposedHeaders() []string {
	return []string{
		"Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
	}
}

// Expose adds [ExposedHeaders] to Access-Control-Expose-Headers of h. What is there is kept. Call it before the middleware
// refuses, which means outside of it.
func Expose(h http.Header) {
	names := h.Values(fieldExpose)
	has := func(name string) bool {
		return slices.ContainsFunc(strings.Split(strings.Join(names, ","), ","), func(n string) bool {
			return strings.EqualFold(strings.TrimSpace(n), name)
		})
	}
	missing := slices.DeleteFunc(ExposedHeaders(), has)
	if len(missing) > 0 {
		h.Add(fieldExpose, strings.Join(missing, ", "))
	}
}

// IsPreflight reports whether r is a CORS preflight request. Browsers send those without credentials, so they have no tenant.
// A CORS middleware outside of the limiter answers them; where there is none, exempt them: [WithExempt](IsPreflight).
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}
