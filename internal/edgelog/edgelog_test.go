package edgelog

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/stretchr/testify/require"
)

func TestDecision(t *testing.T) {
	degraded := leaselimit.Decision{Class: "c", Allowed: true, Source: leaselimit.SourceFallback}
	shadowed := leaselimit.Decision{Class: "c", Allowed: true, Source: leaselimit.SourceStore, Shadowed: true}
	plain := leaselimit.Decision{Class: "c", Source: leaselimit.SourceStore}
	for _, tt := range []struct {
		d     leaselimit.Decision
		level slog.Level
		want  string
	}{
		{plain, slog.LevelDebug, ""},
		{degraded, slog.LevelDebug, "level=DEBUG msg=\"edge: decision\" tenant=acme class=c allowed=true degraded=true shadowed=false\n"},
		{shadowed, slog.LevelDebug, "level=DEBUG msg=\"edge: decision\" tenant=acme class=c allowed=true degraded=false shadowed=true\n"},
		{degraded, slog.LevelInfo, ""},
	} {
		var out bytes.Buffer
		New("edge", slog.New(handler(&out, tt.level))).Decision(t.Context(), "acme", tt.d)
		require.Equal(t, tt.want, out.String())
	}
}

func handler(out *bytes.Buffer, level slog.Level) slog.Handler {
	return slog.NewTextHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

// Errors of the limiter are warnings, once a second however many call; calls without a tenant are none.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New("edge", slog.New(handler(&out, slog.LevelInfo)))
		for range 3 {
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					l.NoDecision(t.Context(), errors.New("no such plan"))
					l.NoTenant(t.Context(), errors.New("no credentials"))
				})
			}
			all.Wait()
			time.Sleep(time.Second)
		}
		require.Equal(t, strings.Repeat("level=WARN msg=\"edge: no decision\" error=\"no such plan\"\n", 3), out.String())
	})
}

// Without a logger of its own it writes to the default one, as that is by then.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	l := New("edge", nil)
	var out bytes.Buffer
	slog.SetDefault(slog.New(handler(&out, slog.LevelWarn)))
	l.NoDecision(t.Context(), errors.New("no such plan"))
	require.Contains(t, out.String(), "edge: no decision")
}
