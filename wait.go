package leaselimit

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/leaselimit/leaselimit/precheck"
)

// While a call waits it looks, from memory, whether its refusal still stands: once in lookEvery at least, so that a change of the
// limit is seen in that time once Config.Limits knows it, and when what the store last said of the tenant is not believed any
// more. Then it asks again, for another replica may have reset the bucket or given something back.
//
// The looks are spread, so that of those that wait for one tenant the first asks and the others see its answer: together they cost
// the store one draw in lookEvery or so. With a call to AllowN in place of each look, 50 that wait for leases of other replicas to
// end draw 750 times in ten minutes, not 122, and are counted as 6,050 refused calls, not 660. And who looked just before the
// answer became too old would see a reset after 10 s only.
const (
	lookEvery = time.Duration(precheck.Hold)
	spread    = lookEvery / 10
)

// Wait blocks until cost tokens are spent for tenant, or fails: with ctx's error when it is done; with [ErrClosed] when the limiter
// is closed; at once, with a [*RefusedError], when the cost can never pass or not before ctx's deadline (this one matches
// [context.DeadlineExceeded]); and with the errors of AllowN. When it fails it has spent nothing. Callers that wait are not served
// in order.
//
// It tries again when the cost could pass as far as is known, and earlier if that changes: within 5 s where Config.Limits answers with
// another limit, within 6 s of a Reset by any replica. For this, a replica in which calls wait for a tenant asks the store about
// every 5 s, once for all of them. Each try counts as a call in Stats.
func (l *Limiter) Wait(ctx context.Context, tenant string, cost int64) error {
	for {
		d, err := l.AllowN(ctx, tenant, cost)
		switch {
		case err != nil:
			return err
		case d.Allowed:
			return nil
		case d.RetryAfter == Never:
			return &RefusedError{Decision: d}
		}
		if err := l.sleep(ctx, tenant, cost, &d); err != nil {
			return err
		}
	}
}

// sleep ends when cost, which d refused, is worth another try: after RetryAfter, or when d does not stand any more.
func (l *Limiter) sleep(ctx context.Context, tenant string, cost int64, d *Decision) error {
	begin, wait := time.Now(), max(d.RetryAfter, time.Millisecond)
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(begin) < wait {
		return &RefusedError{Decision: *d, cause: context.DeadlineExceeded}
	}
	timer := time.NewTimer(min(wait, l.nextLook(tenant)))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return undecided(ctx.Err())
		case <-l.done:
			return ErrClosed
		}
		left := wait - time.Since(begin)
		if left <= 0 || !l.stands(ctx, tenant, cost, d) {
			return nil
		}
		timer.Reset(min(left, l.nextLook(tenant)))
	}
}

// stands reports whether d, which refused cost, is still what is known.
func (l *Limiter) stands(ctx context.Context, tenant string, cost int64, d *Decision) bool {
	limit, err := l.lookUp(ctx, tenant)
	t := l.tenants.load(tenant)
	if err != nil || limit != d.Limit || t == nil {
		return false
	}
	v := t.holder.View()
	return believed(v.Answered) && v.Level+v.Held < cost
}

// nextLook is how long to sleep before the next look: lookEvery and spread at most.
func (l *Limiter) nextLook(tenant string) time.Duration {
	look := lookEvery - rand.N(spread)
	if t := l.tenants.load(tenant); t != nil {
		if age := t.holder.View().Answered; believed(age) {
			look = min(look, lookEvery-age+rand.N(spread))
		}
	}
	return look
}

// believed reports whether an answer of that age, as a View has it, is still gone by.
func believed(age time.Duration) bool { return age >= 0 && age <= time.Duration(precheck.Hold) }
