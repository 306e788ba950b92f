package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// run runs the demo. It fails if the bound was broken, and if the end was not in order.
func run(ctx context.Context, s settings, out cli.Streams) error {
	v := newView(&s, out)
	log := slog.New(slog.NewTextHandler(v.log(), nil))
	f, err := newFleet(ctx, &s, log)
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

	told := out.Out
	if s.json {
		told = out.Err
	}
	page, err := newWeb(ctx, f, told, log)
	if err != nil {
		return errors.Join(err, f.close())
	}
	// A clock that cannot be read is no reason to give up: then it may have run as far off as it may.
	from, _ := f.shared.clock(ctx, f.key())
	elapsed := f.runCalls(ctx, v, page)
	to, _ := f.shared.clock(context.WithoutCancel(ctx), f.key())
	closing := errors.Join(page.close(), f.close())

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

// runCalls makes the calls, in front of v and page, and returns how long it took.
func (f *fleet) runCalls(ctx context.Context, v view, page *web) time.Duration {
	start := time.Now()
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { f.watch(v, start, over) })
	watching.Go(func() { page.follow(start, over) })
	f.drive(ctx, start)
	f.rest(ctx, start)
	elapsed := time.Since(start)
	close(over)
	watching.Wait()
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
