// Package edgelog writes what a middleware or interceptor does not tell clients.
package edgelog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leaselimit/leaselimit"
)

// A Log writes lines that begin with a prefix.
type Log struct {
	prefix string
	logger *slog.Logger // nil: slog.Default, as it is when a line is written
	next   atomic.Int64 // when the next error may be written
}

// New returns a Log; a nil logger is slog.Default().
func New(prefix string, logger *slog.Logger) *Log { return &Log{prefix: prefix, logger: logger} }

// Decision writes of a decision that is not what it seems to the client.
func (l *Log) Decision(ctx context.Context, tenant string, d leaselimit.Decision) {
	if !d.Degraded() && !d.Shadowed {
		return
	}
	if log := l.to(); log.Enabled(ctx, slog.LevelDebug) {
		log.DebugContext(ctx, l.prefix+": decision", slog.String("tenant", tenant), slog.String("class", d.Class),
			slog.Bool("allowed", d.Allowed), slog.Bool("degraded", d.Degraded()), slog.Bool("shadowed", d.Shadowed))
	}
}

// NoTenant writes of a call whose tenant is not known. Whoever has no credentials can make such calls, so they are no warnings.
func (l *Log) NoTenant(ctx context.Context, err error) {
	l.to().DebugContext(ctx, l.prefix+": no tenant", slog.Any("error", err))
}

// NoDecision writes of an error of the limiter, at most once a second.
func (l *Log) NoDecision(ctx context.Context, err error) {
	next, now := l.next.Load(), time.Now()
	if now.UnixNano() >= next && l.next.CompareAndSwap(next, now.Add(time.Second).UnixNano()) {
		l.to().WarnContext(ctx, l.prefix+": no decision", slog.Any("error", err))
	}
}

func (l *Log) to() *slog.Logger {
	if l.logger == nil {
		return slog.Default()
	}
	return l.logger
}
