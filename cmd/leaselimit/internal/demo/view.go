package demo

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// A view shows a run while it goes on. It is told how the run stands every so often, and at the end.
type view interface {
	every() time.Duration // 0: never
	show(s snapshot)
	end(s snapshot)
	// log is where log lines go while the view is on the screen.
	log() io.Writer
}

// newView chooses a view: a table that is redrawn in place where a terminal is, otherwise lines. With -json, standard output is
// for the object alone, so the table is on standard error, and there are no lines.
func newView(s *settings, out cli.Streams) view {
	w := out.Out
	if s.json {
		w = out.Err
	}
	switch t := tty.Of(w); {
	case t != nil:
		v := &live{term: t, style: tty.StyleFor(t), region: tty.NewRegion(t), logs: out.Err}
		if tty.Of(out.Err) != nil { // most likely the same screen
			v.logs = above{v}
		}
		return v
	case s.json:
		return silent{logs: out.Err}
	default:
		return &lines{out: out.Out, logs: out.Err}
	}
}

// silent shows nothing.
type silent struct{ logs io.Writer }

func (silent) every() time.Duration { return 0 }
func (silent) show(snapshot)        {}
func (silent) end(snapshot)         {}
func (s silent) log() io.Writer     { return s.logs }

// lines writes a line a second.
type lines struct {
	out, logs io.Writer

	last time.Duration // that a line was written for
}

func (*lines) every() time.Duration { return time.Second }

func (l *lines) show(s snapshot) {
	l.last = s.elapsed.Round(time.Second)
	t := s.total()
	_, _ = fmt.Fprintf(l.out, "%4s  offered %s, admitted %s, refused %s, store calls %s, held %s, overshoot %s of %s\n", l.last,
		tty.Count(t.offered), tty.Count(t.admitted), tty.Count(t.refused), tty.Count(t.storeCalls), tty.Count(t.held),
		tty.Count(s.overshoot), tty.Count(s.bound.Tokens))
}

func (l *lines) end(s snapshot) {
	if s.elapsed.Round(time.Second) > l.last {
		l.show(s)
	}
}

func (l *lines) log() io.Writer { return l.logs }

// live draws a table over and over.
type live struct {
	term  *tty.Terminal
	style tty.Style
	logs  io.Writer

	mu     sync.Mutex
	region *tty.Region
	last   []string // what is shown
}

func (*live) every() time.Duration { return 100 * time.Millisecond }

func (l *live) show(s snapshot) {
	width, height := l.term.Size()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = frame(s, width, height, l.style)
	l.region.Draw(l.last)
}

func (l *live) end(s snapshot) { l.show(s) }
func (l *live) log() io.Writer { return l.logs }

// above writes log lines above the table.
type above struct{ *live }

func (a above) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.region.Print(p, a.last)
	return len(p), nil
}
