package redisbucket

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/lease"
)

// Replies are taken for what their script can answer to that request, and for nothing else. A proxy, a script of another
// version or a broken bucket may answer anything, and none of it may admit.

// errReply is matched by the errors of all replies that make no sense.
var errReply = errors.New("malformed reply")

func replyError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errReply}, args...)...)
}

// parseGrant reads {waiters, surplus, ready, next, first, spacing, level, retry, epoch, at}.
func parseGrant(v any, req lease.AcquireRequest) (lease.Grant, error) {
	f, err := newFields(v, 10)
	if err != nil {
		return lease.Grant{}, err
	}
	g := lease.Grant{
		Waiters: f.count("waiters", req.Need),
		Surplus: f.count("surplus", req.Want),
	}
	g.Ready = f.count("ready", g.Surplus)
	g.Next = f.count("next", g.Surplus-g.Ready)
	g.First = f.wait("first", false)
	g.Spacing = f.wait("spacing", false)
	g.Level = f.level(req.Terms)
	g.RetryAfter = f.wait("retry", true)
	g.Epoch = f.count("epoch", math.MaxInt64)
	g.At = f.float("at")
	if f.err != nil {
		return lease.Grant{}, f.err
	}

	refused, told := req.Min > 0 && g.Waiters == 0, g.RetryAfter > 0
	switch {
	case g.Waiters > 0 && g.Waiters < req.Min:
		return lease.Grant{}, replyError("waiters is %d, below min, which is %d", g.Waiters, req.Min)
	case refused != told && (told || req.Need > 0): // where nobody waits, min may be there and nobody gets it
		return lease.Grant{}, replyError("waiters is %d of min %d, with a retry of %v", g.Waiters, req.Min, g.RetryAfter)
	case g.Ready < g.Surplus && (req.Horizon == 0 || g.Next == 0):
		return lease.Grant{}, replyError("ready is %d and next %d of surplus %d, with a horizon of %v",
			g.Ready, g.Next, g.Surplus, req.Horizon)
	case g.Ready == g.Surplus && (g.First != 0 || g.Spacing != 0):
		return lease.Grant{}, replyError("first is %v and spacing %v, of nothing", g.First, g.Spacing)
	}
	return g, nil
}

// parseReturn reads {credited}.
func parseReturn(v any, item lease.Return) error {
	f, err := newFields(v, 1)
	if err != nil {
		return err
	}
	f.count("credited", item.Unspent)
	return f.err
}

// parseTake reads {allowed, at, level1, retry1, .., leveln, retryn}.
func parseTake(v any, charges []lease.Charge) (lease.TakeReply, error) {
	f, err := newFields(v, 2+2*len(charges))
	if err != nil {
		return lease.TakeReply{}, err
	}
	r := lease.TakeReply{
		Allowed: f.count("allowed", 1) == 1,
		At:      f.float("at"),
		Levels:  make([]lease.Level, len(charges)),
	}
	passes := true
	for i, c := range charges {
		first := slices.IndexFunc(charges, func(o lease.Charge) bool { return o.Key == c.Key }) // whose terms the bucket is under
		r.Levels[i] = lease.Level{Tokens: f.level(charges[first].Terms), RetryAfter: f.wait("retry", true)}
		passes = passes && r.Levels[i].RetryAfter == 0
	}
	if f.err != nil {
		return lease.TakeReply{}, f.err
	}
	if r.Allowed != passes {
		return lease.TakeReply{}, replyError("allowed is %t, but all could pass is %t", r.Allowed, passes)
	}
	return r, nil
}

// parseState reads {exists, level, out, retry}.
func parseState(v any, terms lease.Terms) (lease.State, error) {
	f, err := newFields(v, 4)
	if err != nil {
		return lease.State{}, err
	}
	st := lease.State{
		Exists:     f.count("exists", 1) == 1,
		Level:      f.level(terms),
		Out:        f.count("out", math.MaxInt64),
		RetryAfter: f.wait("retry", true),
	}
	return st, f.err
}

// parseReset reads 1 or 0.
func parseReset(v any) error {
	f := fields{rest: []any{v}}
	f.count("reply", 1)
	return f.err
}

// fields reads the elements of a reply, one after the other, and keeps the first error. After one it reads zeroes.
type fields struct {
	rest []any
	err  error
}

func newFields(v any, n int) (*fields, error) {
	all, ok := v.([]any)
	if !ok {
		return nil, replyError("%T in place of a list", v)
	}
	if len(all) != n {
		return nil, replyError("%d elements in place of %d", len(all), n)
	}
	return &fields{rest: all}, nil
}

func (f *fields) next() any {
	v := f.rest[0]
	f.rest = f.rest[1:]
	return v
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = replyError(format, args...)
	}
}

// count reads an integer from 0 to most.
func (f *fields) count(name string, most int64) int64 {
	v := f.next()
	n, ok := v.(int64)
	if !ok || n < 0 || n > most {
		f.fail("%s is %v (%T), must be an integer from 0 to %d", name, v, v, most)
		return 0
	}
	return n
}

// float reads a finite number that is written as text.
func (f *fields) float(name string) float64 {
	v := f.next()
	s, ok := v.(string)
	n, err := strconv.ParseFloat(s, 64)
	if !ok || err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		f.fail("%s is %.40q (%T), must be a finite number as text", name, fmt.Sprint(v), v)
		return 0
	}
	return n
}

// level reads what a bucket holds, which may be debt.
func (f *fields) level(t lease.Terms) float64 {
	n := f.float("level")
	if n > float64(t.Limit.Capacity) {
		f.fail("level is %v, above the capacity, which is %d", n, t.Limit.Capacity)
		return 0
	}
	return n
}

// wait reads a time in ms, and if it may be one the word for never.
func (f *fields) wait(name string, never bool) time.Duration {
	ms := f.float(name)
	if ms < 0 && !(never && ms == wire.Never) {
		f.fail("%s is %v ms, must not be negative", name, ms)
		return 0
	}
	return wire.Wait(ms)
}

// parseCensus reads a number of replicas.
func parseCensus(v any) (int, error) {
	f := fields{rest: []any{v}}
	n := f.count("replicas", math.MaxInt32)
	return int(n), f.err
}
