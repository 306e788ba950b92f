package httplimit

import (
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/leaselimit/leaselimit"
)

// logDecision writes of a decision that is not what it seems to the client.
func (m *middleware) logDecision(r *http.Request, tenant string, d leaselimit.Decision) {
	if ctx := r.Context(); m.logger.Enabled(ctx, slog.LevelDebug) {
		m.logger.DebugContext(ctx, "httplimit: decision", slog.String("tenant", tenant), slog.String("class", d.Class),
			slog.Bool("allowed", d.Allowed), slog.Bool("degraded", d.Degraded()), slog.Bool("shadowed", d.Shadowed))
	}
}

// logError writes of a request on which nothing was decided. Whoever has no credentials can send such requests, so they are
// no warnings.
func (m *middleware) logError(r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNoTenant):
		m.logger.DebugContext(r.Context(), "httplimit: request without a tenant", slog.Any("error", err))
	case m.lines.ok(time.Now()):
		m.logger.WarnContext(r.Context(), "httplimit: no decision", slog.Any("error", err))
	}
}

// throttle lets one line a second through.
type throttle struct{ next atomic.Int64 }

func (t *throttle) ok(now time.Time) bool {
	next := t.next.Load()
	return now.UnixNano() >= next && t.next.CompareAndSwap(next, now.Add(time.Second).UnixNano())
}
