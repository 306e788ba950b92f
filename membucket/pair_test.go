package membucket

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/fakeclock"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// pair is the model and the scripts, side by side.
type pair struct {
	rdb   *redis.Client
	clock *fakeclock.Clock
	redis *redisbucket.Store
	plain string // script

	runs int
}

// slack is what is added to every expiry in Redis, so that none comes while a slow machine looks at the bucket.
const slack = 3_600_000 // ms

var pexpire = regexp.MustCompile(`redis\.call\('PEXPIRE', ([^,]+), `)

func withSlack(script string) string {
	return pexpire.ReplaceAllString(script, fmt.Sprintf("redis.call('PEXPIRE', $1, %d + ", slack))
}

func newPair(t *testing.T, mutate func(string) string) *pair {
	p := &pair{rdb: redistest.Client(t), clock: fakeclock.Mutant(0, func(script string) string {
		if mutate != nil {
			script = mutate(script)
		}
		return withSlack(script)
	})}
	p.rdb.AddHook(p.clock)
	p.redis = redisbucket.New(p.rdb, redisbucket.WithPrefix(redistest.Prefix(t)))
	plain, err := os.ReadFile("../scripts/testdata/plain.lua")
	require.NoError(t, err)
	p.plain = string(plain) // the hook sees to its expiry
	return p
}

// world is what one run changes.
type world struct {
	*pair

	model  *Store
	keys   [classes]lease.Key
	expiry map[lease.Key]float64 // ms; expiries run in the time of the run, not in Redis' own
	bare   map[lease.Key]bool    // written by the plain script alone
	grants []granted             // the last ones, for reports and returns
}

type granted struct {
	key int
	lease.Grant
}

// replay gives the first difference.
func (p *pair) replay(r run) error {
	p.runs++
	w := &world{pair: p, model: New(), expiry: make(map[lease.Key]float64), bare: make(map[lease.Key]bool)}
	for i := range w.keys {
		w.keys[i] = lease.Key{Tenant: "run" + strconv.Itoa(p.runs), Class: strconv.Itoa(i)}
	}
	w.model.clock = p.clock.Millis
	p.clock.Advance(time.Duration(r.start-p.clock.Micros()) * time.Microsecond)
	for i, op := range r.ops {
		p.clock.Advance(op.step)
		if err := w.do(op, r); err != nil {
			return fmt.Errorf("at op %d of %v: %+v: %w", i, r, op, err)
		}
	}
	return nil
}

func (w *world) do(op op, r run) error {
	ctx := context.Background()
	terms := r.terms[op.terms%len(r.terms)]
	key := w.keys[op.key]
	if err := w.expire(ctx); err != nil {
		return err
	}
	begun := time.Now()
	for _, k := range w.keys {
		w.spread(k, terms)
	}
	if err := w.step(ctx, op, key, terms, r); err != nil {
		return err
	}
	seen, err := w.look(ctx)
	if err != nil {
		return err
	}
	for i, k := range w.keys {
		written, err := w.compare(k, seen[i], begun)
		if err == nil && written && op.kind != "plain" {
			err = w.invariant(k)
		}
		if err != nil {
			return fmt.Errorf("bucket %s: %w", k.Class, err)
		}
	}
	return nil
}

// step does op on both sides and compares the answers.
func (w *world) step(ctx context.Context, op op, key lease.Key, terms lease.Terms, r run) error {
	switch op.kind {
	case "acquire":
		least := op.a // where nobody waits, the smallest cost that was refused
		if op.b > 0 {
			least = min(op.a, op.b)
		}
		req := lease.AcquireRequest{
			Key: key, Terms: terms, Min: least, Need: op.b, Want: op.c, Horizon: op.horizon, Replicas: op.replicas, Held: op.held,
		}
		for i := range req.Reports {
			if g, ok := w.past(op.refs[i]); ok {
				req.Reports[i] = lease.Report{Epoch: g.Epoch + op.skew, Tokens: op.n[i]}
			}
		}
		a, errA := w.model.Acquire(ctx, req)
		b, errB := w.redis.Acquire(ctx, req)
		if a.Surplus > 0 {
			w.grants = append(w.grants, granted{op.key, a})
		}
		return same(a, errA, b, errB)
	case "return":
		item := lease.Return{Key: key, Terms: terms, Waiters: op.a}
		if g, ok := w.past(op.refs[0]); ok {
			item.Key, item.Epoch, item.Unspent, item.Spent = w.keys[g.key], g.Epoch+op.skew, op.n[0], op.n[1]
			item.At = g.At + float64(op.skew)
		}
		return same(0, w.model.Return(ctx, []lease.Return{item}), 0, w.redis.Return(ctx, []lease.Return{item}))
	case "take":
		charges := []lease.Charge{{Key: key, Terms: terms, Cost: op.a + 1}}
		for i, ref := range op.refs {
			if i < op.replicas {
				c := lease.Charge{Key: w.keys[ref%classes], Terms: r.terms[(op.terms+i+1)%len(r.terms)], Cost: op.n[i] + 1}
				if !slices.ContainsFunc(charges, func(o lease.Charge) bool { return o.Key == c.Key }) {
					w.spread(c.Key, c.Terms)
				}
				charges = append(charges, c)
			}
		}
		for i := range charges {
			charges[i].Owe = (op.held+int64(i))%3 == 1
			for j := range charges[i].Reports {
				if g, ok := w.past(op.refs[j]); ok && w.keys[g.key] == charges[i].Key {
					charges[i].Reports[j] = lease.Report{Epoch: g.Epoch + op.skew, Tokens: op.n[j]}
				}
			}
		}
		a, errA := w.model.Take(ctx, charges)
		b, errB := w.redis.Take(ctx, charges)
		return same(a, errA, b, errB)
	case "peek":
		a, errA := w.model.Peek(ctx, key, terms)
		b, errB := w.redis.Peek(ctx, key, terms)
		return same(a, errA, b, errB)
	case "reset":
		return same(0, w.model.Reset(ctx, key), 0, w.redis.Reset(ctx, key))
	case "plain":
		return w.plainScript(ctx, key, terms, op.a+1)
	}
	return errors.New("no such op")
}

func (w *world) past(ref int) (granted, bool) {
	if ref >= len(w.grants) {
		return granted{}, false
	}
	return w.grants[len(w.grants)-1-ref], true
}

func same[T any](model T, errModel error, lua T, errLua error) error {
	if errModel != nil || errLua != nil {
		return fmt.Errorf("errors: model %w, redis %w", errModel, errLua)
	}
	if !reflect.DeepEqual(model, lua) {
		return fmt.Errorf("answers differ\nmodel %+v\nredis %+v", model, lua)
	}
	return nil
}

// plainScript runs the script of another language in Redis, and the like on the model.
func (w *world) plainScript(ctx context.Context, key lease.Key, terms lease.Terms, cost int64) error {
	t := wire.TermsOf(terms)
	if full := t.Capacity / t.Rate; !(full < 1e12) {
		return nil // its expiry would be an error
	}
	err := w.rdb.Eval(ctx, w.plain, []string{w.redis.RedisKey(key)}, terms.Limit.Capacity,
		strconv.FormatFloat(t.Rate, 'g', 17, 64), cost).Err()
	if err != nil {
		return err
	}
	now := math.Floor(w.clock.Millis())
	rec, ok := w.model.buckets[key]
	if !ok {
		rec = record{tokens: t.Capacity, last: now}
		w.bare[key] = true
	}
	rec.tokens = min(t.Capacity, rec.tokens+max(0, now-rec.last)*t.Rate)
	if rec.tokens >= float64(cost) {
		rec.tokens -= float64(cost)
	}
	rec.last = now
	rec.expires = now + math.Ceil(t.Capacity/t.Rate) + 1000
	w.model.buckets[key] = rec
	return nil
}

// spread gives a bucket that only the plain script has written the terms that the next asker will have: what is absent in Redis
// has no other meaning.
func (w *world) spread(key lease.Key, terms lease.Terms) {
	if !w.bare[key] {
		return
	}
	t, rec := wire.TermsOf(terms), w.model.buckets[key]
	rec.rate, rec.capacity, rec.budget, rec.tau = t.Rate, t.Capacity, t.Budget, t.Tau
	rec.epoch = math.Inf(-1)
	w.model.buckets[key] = rec
}

// expire drops what has expired in the time of the run, on both sides.
func (w *world) expire(ctx context.Context) error {
	for key, at := range w.expiry {
		if math.Floor(w.clock.Millis()) > at {
			delete(w.expiry, key)
			delete(w.model.buckets, key)
			delete(w.bare, key)
			if err := w.rdb.Del(ctx, w.redis.RedisKey(key)).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// stored is a bucket in Redis.
type stored struct {
	hash map[string]string
	pttl int64 // ms
}

// look reads the buckets in Redis and stops their expiry.
func (w *world) look(ctx context.Context) (seen [classes]stored, err error) {
	var hashes [classes]*redis.MapStringStringCmd
	var pttls [classes]*redis.Cmd
	pipe := w.rdb.Pipeline()
	for i, key := range w.keys {
		name := w.redis.RedisKey(key)
		hashes[i], pttls[i] = pipe.HGetAll(ctx, name), pipe.Do(ctx, "PTTL", name)
		pipe.Persist(ctx, name)
	}
	if _, err = pipe.Exec(ctx); err != nil {
		return seen, err
	}
	for i := range seen {
		seen[i].hash = hashes[i].Val()
		if seen[i].pttl, err = pttls[i].Int64(); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// compare compares what is stored, and the expiry if it was written since begun.
func (w *world) compare(key lease.Key, in stored, begun time.Time) (written bool, err error) {
	rec, ok := w.model.buckets[key]
	if ok != (len(in.hash) > 0) {
		return false, fmt.Errorf("exists in the model: %t, in redis: %v", ok, in.hash)
	}
	if !ok {
		delete(w.expiry, key)
		delete(w.bare, key)
		return false, nil
	}

	fields := map[string]float64{"tokens": rec.tokens, "last_refill": rec.last}
	if w.bare[key] = len(in.hash) == 2; !w.bare[key] {
		delete(w.bare, key)
		fields = map[string]float64{
			"tokens": rec.tokens, "last_refill": rec.last, "rate": rec.rate, "capacity": rec.capacity, "budget": rec.budget,
			"epoch": rec.epoch, "tau": rec.tau, "out_cur": rec.cur, "out_prev": rec.prev,
		}
	}
	for name, want := range fields {
		got, err := strconv.ParseFloat(in.hash[name], 64)
		if err != nil || got != want {
			return false, fmt.Errorf("%s is %v in the model, %q in redis", name, want, in.hash[name])
		}
	}
	if len(in.hash) != len(fields) {
		return false, fmt.Errorf("in redis is %v", in.hash)
	}

	written = !math.IsInf(rec.expires, 1)
	if written != (in.pttl >= 0) {
		return false, fmt.Errorf("written in the model: %t, expiry in redis: %d", written, in.pttl)
	}
	if written {
		want := rec.expires - math.Floor(w.clock.Millis())
		if gone := want + slack - float64(in.pttl); gone < 0 || gone > float64(time.Since(begun).Milliseconds()+2) {
			return false, fmt.Errorf("expires in %v ms in the model, in %v in redis", want, in.pttl-slack)
		}
		w.expiry[key] = rec.expires
		rec.expires = math.Inf(1)
		w.model.buckets[key] = rec
	}
	return written, nil
}

// invariant is what bucket.lua promises of every bucket that it wrote, whatever was done to it before.
func (w *world) invariant(key lease.Key) error {
	rec := w.model.buckets[key]
	if b := (bucket{record: rec}); rec.tokens > max(0, b.top())+1e-15*rec.capacity {
		return fmt.Errorf("holds %v, above its cap %v", rec.tokens, b.top())
	}
	return nil
}
