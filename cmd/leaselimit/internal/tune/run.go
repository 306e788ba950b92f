package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// run runs tune.
func run(ctx context.Context, s *settings, out cli.Streams) error {
	l, err := newLab(ctx, s)
	if err != nil {
		return err
	}
	r, err := l.sweep(ctx, progress(out.Err))
	if err = errors.Join(err, l.close()); err != nil {
		return err
	}
	if s.chart != "" {
		if err := os.WriteFile(s.chart, []byte(r.picture()), 0o644); err != nil {
			return fmt.Errorf("-chart: %w", err)
		}
	}
	if s.json {
		err = r.writeJSON(out.Out)
	} else {
		width := math.MaxInt
		t := tty.Of(out.Out)
		if t != nil {
			width, _ = t.Size()
			width-- // some terminals wrap in the last column
		}
		text := r.report(tty.StyleFor(t), width)
		if s.chart != "" {
			text += "\nChart: " + s.chart + "\n"
		}
		_, err = io.WriteString(out.Out, text)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// progress shows on a terminal how many runs were made. Anywhere else it says nothing.
func progress(w io.Writer) func(n, of int) {
	t := tty.Of(w)
	if t == nil {
		return func(int, int) {}
	}
	var mu sync.Mutex
	region, most := tty.NewRegion(t), 0
	return func(n, of int) {
		mu.Lock()
		defer mu.Unlock()
		if n <= most { // told late
			return
		}
		most = n
		if n == of {
			region.Draw(nil)
			return
		}
		width, _ := t.Size()
		region.Draw([]string{tty.Clip(tty.Bar(int64(n), int64(of), fmt.Sprintf("%d of %d runs", n, of), width-1), width-1)})
	}
}
