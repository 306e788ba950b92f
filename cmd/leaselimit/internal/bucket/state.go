package bucket

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// A state is what is known of a bucket. What is not known is nil.
type state struct {
	Tenant string `json:"tenant"`
	Class  string `json:"class"`
	Key    string `json:"key"`
	Exists bool   `json:"exists"` // without a record the bucket is full

	// As it is now, by the script that every draw begins with.
	Level        *float64 `json:"level,omitempty"`
	LeasedOut    *int64   `json:"leased_out,omitempty"`
	RetryAfterMS *float64 `json:"retry_after_ms,omitempty"` // of a call for one token; -1 is never

	// As it is stored.
	Tokens       *float64 `json:"tokens,omitempty"`
	LastRefillMS *float64 `json:"last_refill_ms,omitempty"`
	Capacity     *float64 `json:"capacity,omitempty"`
	RatePerMS    *float64 `json:"rate_per_ms,omitempty"`
	Budget       *float64 `json:"budget,omitempty"`
	EpochMS      *float64 `json:"epoch_ms,omitempty"`
	TauMS        *float64 `json:"tau_ms,omitempty"`
	OutCur       *float64 `json:"out_cur,omitempty"`
	OutPrev      *float64 `json:"out_prev,omitempty"`
	NowMS        float64  `json:"now_ms"`           // when it was read, by the clock of Redis
	TTLMS        *int64   `json:"ttl_ms,omitempty"` // nil: it never expires

	record *record
}

// state reads a bucket.
func (j *job) state(ctx context.Context) (*state, error) {
	r, err := j.record(ctx)
	if err != nil {
		return nil, err
	}
	s := &state{
		Tenant: j.tenant, Class: j.key.Class, Key: j.store.RedisKey(j.key), Exists: r.exists(), NowMS: r.now, record: r,
	}
	if !r.exists() {
		return s, nil
	}
	if r.kind != "hash" {
		return nil, fmt.Errorf("the key %s holds a %s and no bucket; 'leaselimit reset' deletes it", s.Key, r.kind)
	}
	for field, at := range map[string]**float64{
		"tokens": &s.Tokens, "last_refill": &s.LastRefillMS, "capacity": &s.Capacity, "rate": &s.RatePerMS,
		"budget": &s.Budget, "epoch": &s.EpochMS, "tau": &s.TauMS, "out_cur": &s.OutCur, "out_prev": &s.OutPrev,
	} {
		if v, ok := r.number(field); ok {
			*at = &v
		}
	}
	if r.ttl >= 0 {
		ms := r.ttl.Milliseconds()
		s.TTLMS = &ms
	}
	return s, j.project(ctx, s)
}

// maxTau is in milliseconds, and more than any configuration allows.
const maxTau = 1e9

func within(v *float64, most float64) bool { return v != nil && *v >= 0 && *v <= most }

// project adds what the bucket holds now, under the terms that stand in it. Without them nobody knows: a plain script of
// another language keeps its terms to itself.
func (j *job) project(ctx context.Context, s *state) error {
	const most = float64(quota.MaxTokens)
	if !within(s.Capacity, most) || !within(s.RatePerMS, most) || !within(s.Budget, most) || !within(s.TauMS, maxTau) {
		return nil
	}
	now, err := j.store.Peek(ctx, j.key, lease.Terms{
		Limit:  limitOf(*s.Capacity, *s.RatePerMS),
		Budget: int64(*s.Budget),
		TTL:    time.Duration(max(1, *s.TauMS) * float64(time.Millisecond)),
	})
	if err != nil {
		return err
	}
	s.Level, s.LeasedOut = &now.Level, &now.Out
	retry := float64(-1)
	if now.RetryAfter != lease.Never {
		retry = float64(now.RetryAfter) / float64(time.Millisecond)
	}
	s.RetryAfterMS = &retry
	return nil
}

// limitOf is a limit of this rate, in tokens per millisecond: over a second, minute, hour or day if it is a whole number of
// tokens there, else as near as nanoseconds allow.
func limitOf(capacity, rate float64) quota.Limit {
	l := quota.Limit{Capacity: int64(capacity)}
	if rate <= 0 {
		return l
	}
	for _, per := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		n := rate * float64(per.Milliseconds())
		if whole := math.Round(n); whole >= 1 && math.Abs(n-whole) < 1e-9*n && whole <= float64(quota.MaxTokens) {
			l.Refill, l.Per = int64(whole), per
			return l
		}
	}
	refill := max(1, min(math.Round(rate*1000), float64(quota.MaxTokens)))
	per := refill / rate * float64(time.Millisecond)
	if per >= math.MaxInt64 {
		return l // less than a token in 292 years
	}
	l.Refill, l.Per = int64(refill), max(1, time.Duration(per))
	return l
}
