package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// run runs the demo. It fails if the bound was broken, and if the end was not in order.
func run(ctx context.Context, s settings, out cli.Streams) error {
	v := newView(&s, out)
	f, err := newFleet(ctx, &s, slog.New(slog.NewTextHandler(v.log(), nil)))
	if err != nil {
		return err
	}
	style, width := tty.StyleFor(tty.Of(out.Out)), math.MaxInt
	if t := tty.Of(out.Out); t != nil {
		width, _ = t.Size()
	}
	if !s.json {
		if _, err := io.WriteString(out.Out, tty.Wrap(f.title(style), width)+"\n"); err != nil {
			return errors.Join(err, f.close())
		}
	}

	// A clock that cannot be read is no reason to give up: then it may have run as far off as it may.
	from, _ := f.shared.clock(ctx, f.key())
	elapsed := f.runCalls(ctx, v)
	to, _ := f.shared.clock(context.WithoutCancel(ctx), f.key())
	closing := f.close()

	r := newResult(f, elapsed, ahead(from, to))
	r.Interrupted = ctx.Err() != nil
	if s.json {
		err = writeJSON(out.Out, r)
	} else {
		_, err = io.WriteString(out.Out, r.report(style, width))
	}
	switch {
	case err != nil:
		return fmt.Errorf("write the report: %w", err)
	case !r.BoundHeld:
		return fmt.Errorf("the bound is broken: the overshoot is %s tokens, at most %d are allowed", tty.Number(r.Overshoot), r.Bound)
	case r.Degraded == r.Offered && r.Offered > 0:
		return errors.New("the store did not answer a single call")
	case r.Undecided > 0:
		return fmt.Errorf("%d calls were not decided: %w", r.Undecided, f.firstError())
	case closing != nil:
		return fmt.Errorf("at the end: %w", closing)
	}
	return nil
}

// runCalls makes the calls, in front of v, and returns how long it took.
func (f *fleet) runCalls(ctx context.Context, v view) time.Duration {
	start := time.Now()
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		f.watch(v, start, over)
	}()
	f.drive(ctx, start)
	f.rest(ctx, start)
	elapsed := time.Since(start)
	close(over)
	<-watched
	return elapsed
}

// rest waits for the end of the duration: the last call is somewhat before.
func (f *fleet) rest(ctx context.Context, start time.Time) {
	timer := time.NewTimer(f.duration - time.Since(start))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func writeJSON(w io.Writer, r result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
