// Package patience is how long polite clients wait before they try again.
package patience

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Patience is what is left of it for one call.
type Patience struct {
	Attempts int           // the one under way included
	Wait     time.Duration // over all attempts
}

// Default is that of polite clients.
func Default() Patience { return Patience{Attempts: 4, Wait: 30 * time.Second} }

// Check panics if p, as the options of a package made it, is out of its bounds.
func (p Patience) Check(pkg string) {
	if p.Attempts < 1 {
		panic(fmt.Sprintf("%s: WithMaxAttempts is %d, must be 1 or more", pkg, p.Attempts))
	}
	if p.Wait < 0 {
		panic(fmt.Sprintf("%s: WithMaxWait is %v, must be 0 or more", pkg, p.Wait))
	}
}

// Take is how long to wait, of a server that says told, before the next attempt: with Jitter. It reports false and takes nothing if
// there is no attempt left, or the wait would be too long or go past ctx's deadline.
func (p *Patience) Take(ctx context.Context, told time.Duration) (time.Duration, bool) {
	wait := Jitter(told)
	if p.Attempts <= 1 || wait > p.Wait || PastDeadline(ctx, wait) {
		return 0, false
	}
	p.Attempts--
	p.Wait -= wait
	return wait, true
}

// Jitter lengthens d by 10 to 25 %, so that clients that were refused together come back apart. It never shortens, as who comes too
// early is refused again.
func Jitter(d time.Duration) time.Duration {
	longer := d + time.Duration(float64(d)*(0.10+0.15*rand.Float64()))
	return max(d, longer) // d, if that overflows
}

// MaxJitter is the most that Jitter makes of d.
func MaxJitter(d time.Duration) time.Duration { return max(d, d+d/4) }

// PastDeadline reports whether nothing is left of ctx's time after a wait.
func PastDeadline(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= wait
}

// Sleep reports whether d passed before ctx was done.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
