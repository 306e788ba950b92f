package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/edgelog"
	"github.com/leaselimit/leaselimit/internal/ratefields"
)

// An Allower decides on calls: a *leaselimit.Limiter.
type Allower interface {
	AllowN(ctx context.Context, tenant string, cost int64) (leaselimit.Decision, error)
}

// ErrNoTenant is matched (errors.Is) by the error of a request whose tenant is not known.
var ErrNoTenant = errors.New("httplimit: no tenant")

// Middleware returns a middleware that asks lim before the next handler does any work: the body of a refused request is not
// read. Make lim, and the middleware, once for each process and not for each request.
//
// tenant says whom a request counts for, from a verified identity. The empty name and an error both mean that there is none,
// and such a request is refused with 401. An error of lim means that nothing was decided, and is answered with 503, or 403 where
// the tenant has no limit. See [WithRefused] and [WithError] for other answers, and [WithExempt] for requests that are not limited.
//
// The ResponseWriter is handed on as it is, so the handler may flush, hijack and send trailers as without the middleware.
// Header fields are set before the handler runs; those that are there already are kept, so middlewares of several
// limits (with a Class each) may be stacked. Put the one that refuses most outside, since what an outer one charged stays charged.
//
// It panics if lim or tenant is nil, or an option is out of its bounds.
func Middleware(lim Allower, tenant func(*http.Request) (string, error), opts ...Option) func(http.Handler) http.Handler {
	if lim == nil {
		panic("httplimit: lim is nil")
	}
	if tenant == nil {
		panic("httplimit: tenant is nil")
	}
	m := &middleware{lim: lim, tenant: tenant, options: newOptions(opts)}
	m.log = edgelog.New("httplimit", m.logger)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if m.admit(w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}
}

type middleware struct {
	options

	lim    Allower
	tenant func(*http.Request) (string, error)
	log    *edgelog.Log
}

// admit reports whether r may go on. If not, it has been answered.
func (m *middleware) admit(w http.ResponseWriter, r *http.Request) bool {
	for _, exempt := range m.exempt {
		if exempt(r) {
			return true
		}
	}
	tenant, err := m.tenant(r)
	switch {
	case err != nil:
		m.fail(w, r, Event{Err: fmt.Errorf("%w: %w", ErrNoTenant, err)})
		return false
	case tenant == "":
		m.fail(w, r, Event{Err: ErrNoTenant})
		return false
	}
	cost := int64(1)
	if m.cost != nil {
		cost = m.cost(r)
	}
	d, err := m.lim.AllowN(r.Context(), tenant, cost)
	if err != nil {
		m.fail(w, r, Event{Tenant: tenant, Err: err})
		return false
	}
	if m.observe != nil {
		m.observe(r, Event{Tenant: tenant, Decision: d})
	}
	m.log.Decision(r.Context(), tenant, d)
	told := ratefields.Spread(d, m.spread)
	if !told.Allowed {
		setRetryAfter(w.Header(), &told)
	}
	m.headers.write(w.Header(), &told)
	if !d.Allowed {
		m.refused(w, r, d)
	}
	return d.Allowed
}

// statusClientGone is what nginx logs for a request whose client went away. Nobody reads it; but if nothing were written,
// net/http would write 200.
const statusClientGone = 499

// fail answers a request on which nothing was decided.
func (m *middleware) fail(w http.ResponseWriter, r *http.Request, e Event) {
	if m.observe != nil {
		m.observe(r, e)
	}
	switch {
	case errors.Is(e.Err, context.Canceled) && r.Context().Err() != nil:
		w.WriteHeader(statusClientGone)
		return
	case e.Tenant == "":
		m.log.NoTenant(r.Context(), e.Err)
	default:
		m.log.NoDecision(r.Context(), e.Err)
	}
	m.failed(w, r, e.Err)
}
