package bucket

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

//go:embed look.lua
var lookScript string

// A record is a bucket as it is stored. Its layout is described in scripts/bucket.lua.
type record struct {
	kind   string  // the type of the key, "none" if there is none
	now    float64 // ms, by the clock of Redis
	ttl    time.Duration
	fields map[string]string
}

func (r *record) exists() bool { return r.kind != "none" }

// number is a field, unless it is not there or no finite number.
func (r *record) number(field string) (float64, bool) {
	v, err := strconv.ParseFloat(r.fields[field], 64)
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// age is how long ago a field's time was.
func (r *record) age(field string) (time.Duration, bool) {
	at, ok := r.number(field)
	return ms(max(0, r.now-at)), ok
}

var errReply = errors.New("the answer of Redis makes no sense")

// record reads what is stored.
func (j *job) record(ctx context.Context) (*record, error) {
	reply, err := j.rdb.Eval(ctx, lookScript, []string{j.store.RedisKey(j.key)}).Slice()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if len(reply) != 4 {
		return nil, errReply
	}
	clock, ok1 := reply[0].([]any)
	kind, ok2 := reply[1].(string)
	ttl, ok3 := reply[2].(int64)
	fields, ok4 := reply[3].([]any)
	if !ok1 || !ok2 || !ok3 || !ok4 || len(clock) != 2 || len(fields)%2 != 0 {
		return nil, errReply
	}
	r := &record{kind: kind, ttl: time.Duration(ttl) * time.Millisecond, fields: make(map[string]string, len(fields)/2)}
	seconds, err1 := strconv.ParseFloat(fmt.Sprint(clock[0]), 64)
	micros, err2 := strconv.ParseFloat(fmt.Sprint(clock[1]), 64)
	if err1 != nil || err2 != nil {
		return nil, errReply
	}
	r.now = seconds*1000 + micros/1000
	for i := 0; i < len(fields); i += 2 {
		r.fields[fmt.Sprint(fields[i])] = fmt.Sprint(fields[i+1])
	}
	return r, nil
}
