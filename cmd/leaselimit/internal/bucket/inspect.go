package bucket

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

func inspect(ctx context.Context, j *job) error {
	s, err := j.state(ctx)
	if err != nil {
		return err
	}
	if j.json {
		return writeJSON(j.Out, s)
	}
	_, err = io.WriteString(j.Out, s.words())
	return err
}

// words says it for people.
func (s *state) words() string {
	var b strings.Builder
	fmt.Fprintln(&b, title(s.Tenant, s.Class))
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s  %s\n", name, fmt.Sprintf(format, args...))
	}
	line("key", "%s", s.Key)
	if !s.Exists {
		line("level", "no record: the bucket is full")
		return b.String()
	}
	s.now(line)
	s.stored(line)
	if s.TTLMS == nil {
		line("expires", "never, unlike every bucket that leaselimit wrote")
	} else {
		line("expires", "in %s, unless it is used", tty.Duration(s.record.ttl))
	}
	return b.String()
}

// now is what holds now.
func (s *state) now(line func(name, format string, args ...any)) {
	if s.Level == nil {
		line("level", "not known: the terms are not stored, or broken; a plain token-bucket script stores none")
		return
	}
	of := "of " + tty.Number(*s.Capacity) + " tokens"
	if *s.Level < 0 {
		line("level", "%s %s now, debt of future-dated leases; %s", tty.Number(*s.Level), of, s.next())
	} else {
		line("level", "%s %s now; %s", tty.Number(*s.Level), of, s.next())
	}
	line("leased out", "%s to all replicas together", plural(*s.LeasedOut, "token"))
	budget := "no overshoot"
	if *s.Budget > 0 {
		budget = "overshoot budget " + tty.Number(*s.Budget)
	}
	line("terms", "%s, %s, leases of %s", limitOf(*s.Capacity, *s.RatePerMS), budget, ms(*s.TauMS))
}

// next is when a call can pass.
func (s *state) next() string {
	switch after := *s.RetryAfterMS; {
	case after < 0:
		return "no call can ever pass"
	case after > 0:
		return "a call can pass in " + tty.Duration(ms(after))
	}
	return "a call can pass"
}

// stored is what stands in the record.
func (s *state) stored(line func(name, format string, args ...any)) {
	if s.EpochMS != nil && s.OutCur != nil && s.OutPrev != nil {
		age, _ := s.record.age("epoch")
		line("epoch", "%.0f, began %s ago; stored as leased: %s in it, %s in the one before", *s.EpochMS, tty.Duration(age),
			tty.Number(*s.OutCur), tty.Number(*s.OutPrev))
	}
	if s.Tokens == nil || s.LastRefillMS == nil {
		line("stored", "broken: tokens or last_refill is no number")
		return
	}
	age, _ := s.record.age("last_refill")
	line("stored", "%s tokens, %s ago", tty.Number(*s.Tokens), tty.Duration(age))
}

func title(tenant, class string) string {
	for _, r := range tenant {
		if !unicode.IsPrint(r) {
			tenant = strconv.Quote(tenant)
			break
		}
	}
	return fmt.Sprintf("Tenant %s, class %s", tenant, class)
}

func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return tty.Count(n) + " " + noun
}

// ms is a time in milliseconds.
func ms(v float64) time.Duration {
	return time.Duration(min(v*float64(time.Millisecond), math.MaxInt64/2))
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
