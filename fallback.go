package leaselimit

import (
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// retryClosed is the RetryAfter of a refusal by FailClosed: nobody knows when the store will be back.
const retryClosed = time.Second

// fallback decides on a call that the store did not decide on. d has its class and limit.
func (l *Limiter) fallback(d *Decision, t *tenant, cost int64) {
	d.Source, d.Policy = SourceFallback, l.cfg.OnFailure
	switch l.cfg.OnFailure {
	case FailOpen:
		d.Allowed = true
	case FailClosed:
		d.RetryAfter = retryClosed
	default:
		d.Allowed, d.Remaining, d.RetryAfter = t.fallback.take(l.share(d.Limit), l.pool.Now(), cost)
	}
	if d.Allowed {
		l.count.allowedFallback.Add(1)
	} else {
		l.count.refusedFallback.Add(1)
	}
}

// peekFallback is what Peek answers when the store does not.
func (l *Limiter) peekFallback(t *tenant, limit quota.Limit) Decision {
	d := Decision{Source: SourceFallback, Policy: l.cfg.OnFailure, Class: l.cfg.Class, Limit: limit}
	switch l.cfg.OnFailure {
	case FailOpen:
		d.Allowed = true
	case FailClosed:
		d.RetryAfter = retryClosed
	default:
		d.Remaining, d.RetryAfter = t.fallback.peek(l.share(limit), l.pool.Now())
		d.Allowed = d.Remaining > 0
	}
	return d
}

// share is this replica's part of a limit, with a capacity of at least one token.
func (l *Limiter) share(limit quota.Limit) share {
	n := float64(4)
	if l.cfg.Replicas > 0 {
		n = float64(l.cfg.Replicas)
	}
	return share{
		capacity: math.Max(1, math.Floor(float64(limit.Capacity)/n)),
		rate:     limit.PerMillisecond() / 1e6 / n,
	}
}

type share struct{ capacity, rate float64 } // tokens, tokens per nanosecond

// fallback is a plain token bucket of one tenant and one replica, full when it is first needed. The zero fallback has not
// been.
type fallback struct {
	mu     sync.Mutex
	known  bool
	tokens float64
	last   int64
}

func (f *fallback) take(s share, now, cost int64) (ok bool, left int64, retry time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fillLocked(s, now)
	if ok = f.tokens+1e-9 >= float64(cost); ok {
		f.tokens -= float64(cost)
	} else {
		retry = f.retryLocked(s, cost)
	}
	return ok, int64(max(0, f.tokens+1e-9)), retry
}

func (f *fallback) peek(s share, now int64) (left int64, retry time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fillLocked(s, now)
	if f.tokens+1e-9 < 1 {
		retry = f.retryLocked(s, 1)
	}
	return int64(max(0, f.tokens+1e-9)), retry
}

func (f *fallback) fillLocked(s share, now int64) {
	if !f.known {
		f.known, f.tokens = true, s.capacity
	}
	f.tokens = min(s.capacity, f.tokens+float64(max(0, now-f.last))*s.rate)
	f.last = max(f.last, now)
}

func (f *fallback) retryLocked(s share, cost int64) time.Duration {
	if float64(cost) > s.capacity || s.rate <= 0 {
		return retryClosed // not never: the store may be back
	}
	wait := math.Ceil((float64(cost) - f.tokens) / s.rate)
	if wait >= math.MaxInt64 {
		return Never - 1
	}
	return time.Duration(max(wait, float64(time.Millisecond)))
}

func (f *fallback) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = false
}

// tenantLine is the least distance between two lines about faults of single tenants.
const tenantLine = int64(10 * time.Second)

// storeChanged logs that the store has ceased to answer, or answers again. There is one line for each change.
func (l *Limiter) storeChanged(cause *lease.StoreError, lasted time.Duration) {
	if cause == nil {
		l.cfg.Logger.Info("leaselimit: store answers again", slog.String("class", l.cfg.Class), slog.Duration("after", lasted))
		return
	}
	l.warn("leaselimit: store does not answer", cause)
}

// warnOfBucket logs, now and then, a fault of a single bucket, which says nothing about the store.
func (l *Limiter) warnOfBucket(err error) {
	if r := lease.ReasonOf(err); r != lease.ReasonWrongType && r != lease.ReasonMalformed {
		return
	}
	now, last := l.pool.Now(), l.warned.Load()
	if (last == 0 || now-last > tenantLine) && l.warned.CompareAndSwap(last, now+1) {
		l.warn("leaselimit: a bucket cannot be used", err)
	}
}

func (l *Limiter) warn(text string, err error) {
	l.cfg.Logger.Warn(text, slog.String("class", l.cfg.Class), slog.String("reason", string(lease.ReasonOf(err))),
		slog.String("policy", l.cfg.OnFailure.String()), slog.Any("error", err))
}
