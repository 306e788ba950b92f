package leaselimit

import (
	"log/slog"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// retryClosed is the RetryAfter of a refusal by FailClosed: nobody knows when the store will be back.
const retryClosed = time.Second

// fallback decides on a call that the store did not decide on. d has its class and limit.
func (l *Limiter) fallback(d *Decision, t *tenant, cost int64) {
	l.decideFallback(d, t, cost)
	if d.Allowed {
		l.count.allowedFallback.Add(1)
	} else {
		l.count.refusedFallback.Add(1)
	}
}

// decideFallback is fallback without the counts.
func (l *Limiter) decideFallback(d *Decision, t *tenant, cost int64) {
	d.Source, d.Policy = SourceFallback, l.cfg.OnFailure
	switch l.cfg.OnFailure {
	case FailOpen:
		d.Allowed = true
	case FailClosed:
		d.RetryAfter = retryClosed
	default:
		d.Allowed, d.Remaining, d.RetryAfter = t.holder.SpendShare(d.Limit, cost)
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
		d.Remaining, d.RetryAfter = t.holder.PeekShare(limit)
		d.Allowed = d.Remaining > 0
	}
	return d
}

// tenantLine is the least distance between two lines about faults of single tenants.
const tenantLine = int64(10 * time.Second)

// storeChanged logs that the store has ceased to answer, or answers again. There is one line for each change.
func (l *Limiter) storeChanged(cause *lease.StoreError, lasted time.Duration) {
	if cause == nil {
		l.cfg.Logger.Info("leaselimit: store answers again", slog.String("class", l.cfg.Class), slog.Duration("after", lasted))
		l.cfg.Observer.stateChanged(false, "")
		return
	}
	l.warn("leaselimit: store does not answer", cause)
	l.cfg.Observer.stateChanged(true, cause.Reason)
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
