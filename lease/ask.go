package lease

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/leaselimit/leaselimit/quota"
)

// ask calls the store, bounded by the timeout, and turns a panic into an error: a fault of one call must not leave a tenant
// without an answer for ever.
func ask[T any](p *Pool, op string, call func(context.Context) (T, error)) (reply T, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.opts.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = &StoreError{Op: op, Reason: ReasonOther, Err: panicError{r}}
		}
	}()
	return call(ctx)
}

// await is attempt, unless the breaker is open, and tells the breaker.
func await[T any](ctx context.Context, h *Holder, op string, call func(context.Context) (T, error)) (T, error) {
	p := h.pool
	var zero T
	if err := p.breaker.open(h); err != nil {
		return zero, err
	}
	reply, err := attempt(ctx, p, op, call)
	switch now := p.exact(); {
	case err == nil:
		p.breaker.answered(h, now)
	case ctx.Err() == nil && !errors.Is(err, ErrClosed):
		p.breaker.failed(h, err, now)
	}
	return reply, err
}

// attempt is ask for a caller with a context of its own, which returns in time even if the store's client does not.
func attempt[T any](ctx context.Context, p *Pool, op string, call func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		reply T
		err   error
	}
	done := make(chan outcome, 1)
	var zero T
	if !p.enter() {
		return zero, ErrClosed
	}
	go func() {
		defer p.work.Done()
		reply, err := ask(p, op, call)
		done <- outcome{reply, err}
	}()
	late := time.NewTimer(p.opts.Timeout)
	defer late.Stop()
	select {
	case o := <-done:
		return o.reply, o.err
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-late.C:
		return zero, &StoreError{Op: op, Reason: ReasonTimeout, Err: context.DeadlineExceeded}
	}
}

// Peek asks the store what the bucket holds, and adds what is in hand here: the tokens that a call could have now, and when
// a cost of 1 could pass.
func (h *Holder) Peek(ctx context.Context, limit quota.Limit) (Result, error) {
	t := h.pool.opts.Terms(limit)
	state, err := await(ctx, h, "peek", func(ctx context.Context) (State, error) {
		return h.pool.store.Peek(ctx, h.Key(), t)
	})
	if err != nil {
		return Result{}, err
	}
	here := h.local.Available(h.pool.exact())
	r := Result{Verdict: FromStore, Remaining: min(t.Limit.Capacity, here+whole(state.Level))}
	if r.Remaining < 1 {
		r.Verdict, r.RetryAfter = RefusedStore, state.RetryAfter
	}
	return r, nil
}

// Remaining is how many tokens are left as far as this replica knows.
func (h *Holder) Remaining() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.remainingLocked(h.pool.Now())
}

// Reset fills the shared bucket up and forgets what was known of it.
func (h *Holder) Reset(ctx context.Context) error {
	_, err := await(ctx, h, "reset", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.pool.store.Reset(ctx, h.Key())
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mark.Store(nil)
	h.level = floor32(float64(h.Limit().Capacity))
	h.mu.share = math.Inf(1)
	if b := h.mu.busy; b != nil {
		b.nextAsk, b.nextTop = 0, 0
	}
	return nil
}
