package childproc

import (
	"context"
	"errors"
	"time"
)

const pollEvery = 10 * time.Millisecond

// Poll calls f at once and then every 10 ms, until it is done or ctx ends. It
// returns what f returned when done, or else ctx's error joined with the last
// reason f gave for not being done.
func Poll(ctx context.Context, f func() (done bool, err error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, err := f()
		if done {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}
