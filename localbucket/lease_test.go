package localbucket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leaselimit/leaselimit/localbucket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A step does something at a time and says what must come of it: the answer, and the bucket afterwards.
type step struct {
	at    int64
	do    string // see bench.do
	says  string
	state string // of the bucket, as in Bucket.String
}

// bench is a bucket that is driven by steps.
type bench struct {
	bucket localbucket.Bucket
	leases []*localbucket.Lease // all ever added, by number
}

// do carries out one of
//
//	add TOKENS UNTIL               a lease, numbered 1, 2 ..
//	dated TOKENS UNTIL READY NEXT FROM SPACING
//	take N | split N | upto LEASE N | undo LEASE N | close LEASE | arm LOW | low LEASE LEFT
//	avail | left | when N | drop   (drop removes what is exhausted or past)
func (b *bench) do(t *testing.T, now int64, line string) string {
	t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	var n [6]int64
	for i, f := range strings.Fields(rest) {
		_, err := fmt.Sscan(f, &n[i])
		require.NoError(t, err, line)
	}
	lease := func() *localbucket.Lease { return b.leases[n[0]-1] }
	add := func(g localbucket.Grant) string {
		g.Epoch = int64(len(b.leases) + 1)
		l := localbucket.NewLease(g)
		b.leases = append(b.leases, l)
		b.bucket.Add(l)
		return ""
	}
	switch word {
	case "add":
		return add(localbucket.Grant{Tokens: n[0], Deadline: n[1], Ready: n[0]})
	case "dated":
		return add(localbucket.Grant{Tokens: n[0], Deadline: n[1], Ready: n[2], Next: n[3], From: n[4], Spacing: n[5]})
	case "take":
		l, left, ok := b.bucket.Take(now, n[0])
		if !ok {
			return "no"
		}
		return fmt.Sprintf("%d: %d", l.Epoch(), left)
	case "split":
		return fmt.Sprint(b.bucket.Split(now, n[0]))
	case "upto":
		return fmt.Sprint(lease().TakeUpTo(now, n[1]))
	case "undo":
		return fmt.Sprint(lease().Undo(n[1]))
	case "close":
		unspent, spent := lease().Close()
		return fmt.Sprintf("%d+%d", unspent, spent)
	case "arm":
		b.bucket.Arm(n[0])
		return ""
	case "low":
		return fmt.Sprint(lease().Low(n[1]))
	case "avail":
		return fmt.Sprint(b.bucket.Available(now))
	case "left":
		return fmt.Sprint(b.bucket.Left(now))
	case "when":
		at, ok := b.bucket.When(now, n[0])
		if !ok {
			return "never"
		}
		return fmt.Sprint(at)
	case "drop":
		gone := b.bucket.Remove(func(l *localbucket.Lease) bool { return l.Left() == 0 || now >= l.Deadline() })
		return fmt.Sprint(len(gone))
	}
	t.Fatalf("no such step: %q", line)
	return ""
}

func TestSteps(t *testing.T) {
	for name, steps := range map[string][]step{
		"a lease is spent to its end": {
			{0, "take 1", "no", ""},
			{0, "add 3 100", "", "1:3/3"},
			{1, "take 1", "1: 2", "1:2/3"},
			{2, "take 3", "no", "1:2/3"},
			{2, "take 2", "1: 0", "1:0/3"},
			{3, "take 1", "no", "1:0/3"},
			{3, "drop", "1", ""},
		},
		"the oldest lease that covers the cost pays": {
			{0, "add 2 100", "", "1:2/2"},
			{0, "add 5 200", "", "1:2/2 2:5/5"},
			{1, "take 3", "2: 2", "1:2/2 2:2/5"},
			{1, "take 1", "1: 1", "1:1/2 2:2/5"},
			{1, "take 1", "1: 0", "1:0/2 2:2/5"},
			{1, "take 1", "2: 1", "1:0/2 2:1/5"},
			{1, "avail", "1", "1:0/2 2:1/5"},
		},
		"the deadline is the first moment at which nothing may be spent": {
			{0, "add 9 100", "", "1:9/9"},
			{99, "take 1", "1: 8", "1:8/9"},
			{99, "take 2", "1: 6", "1:6/9"},
			{99, "upto 1 2", "2", "1:4/9"},
			{99, "avail", "4", "1:4/9"},
			{99, "when 4", "99", "1:4/9"},
			{100, "take 1", "no", "1:4/9"},
			{100, "take 2", "no", "1:4/9"},
			{100, "upto 1 2", "0", "1:4/9"},
			{100, "split 1", "false", "1:4/9"},
			{100, "avail", "0", "1:4/9"},
			{100, "left", "0", "1:4/9"},
			{100, "when 1", "never", "1:4/9"},
			{100, "drop", "1", ""},
		},
		"a lease that has ended does not hide a later one": {
			{0, "add 5 10", "", "1:5/5"},
			{0, "add 2 20", "", "1:5/5 2:2/2"},
			{10, "left", "2", "1:5/5 2:2/2"},
			{10, "take 1", "2: 1", "1:5/5 2:1/2"},
			{10, "split 1", "true", "1:5/5 2:0/2"},
		},
		"split takes from several leases, all or nothing": {
			{0, "add 2 100", "", "1:2/2"},
			{0, "add 3 100", "", "1:2/2 2:3/3"},
			{0, "add 4 100", "", "1:2/2 2:3/3 3:4/4"},
			{1, "split 10", "false", "1:2/2 2:3/3 3:4/4"},
			{1, "split 6", "true", "1:0/2 2:0/3 3:3/4"},
			{1, "split 4", "false", "1:0/2 2:0/3 3:3/4"},
			{1, "split 3", "true", "1:0/2 2:0/3 3:0/4"},
		},
		"undo puts back what was taken": {
			{0, "add 4 100", "", "1:4/4"},
			{0, "take 3", "1: 1", "1:1/4"},
			{0, "undo 1 3", "true", "1:4/4"},
			{0, "upto 1 9", "4", "1:0/4"},
			{0, "undo 1 1", "true", "1:1/4"},
			{0, "take 1", "1: 0", "1:0/4"},
		},
		"close takes all for good": {
			{0, "add 5 100", "", "1:5/5"},
			{0, "take 2", "1: 3", "1:3/5"},
			{0, "close 1", "3+2", "1:0/5"},
			{0, "take 1", "no", "1:0/5"},
			{0, "take 2", "no", "1:0/5"},
			{0, "upto 1 1", "0", "1:0/5"},
			{0, "split 1", "false", "1:0/5"},
			{0, "undo 1 2", "false", "1:0/5"},
			{0, "take 1", "no", "1:0/5"},
			{0, "avail", "0", "1:0/5"},
		},
		"future tokens become ready one by one": {
			{0, "dated 5 100 1 2 20 10", "", "1:5/5"},
			{0, "left", "5", "1:5/5"},
			{0, "avail", "1", "1:5/5"},
			{0, "when 1", "0", "1:5/5"},
			{0, "when 2", "20", "1:5/5"},
			{0, "when 3", "20", "1:5/5"},
			{0, "when 4", "30", "1:5/5"},
			{0, "when 5", "40", "1:5/5"},
			{0, "when 6", "never", "1:5/5"},
			{0, "take 2", "no", "1:5/5"},
			{0, "take 1", "1: 0", "1:4/5"},
			{0, "take 1", "no", "1:4/5"},
			{19, "take 1", "no", "1:4/5"},
			{19, "when 2", "20", "1:4/5"},
			{20, "take 3", "no", "1:4/5"},
			{20, "take 1", "1: 1", "1:3/5"},
			{29, "split 2", "false", "1:3/5"},
			{30, "take 2", "1: 0", "1:1/5"},
			{39, "take 1", "no", "1:1/5"},
			{39, "upto 1 1", "0", "1:1/5"},
			{40, "upto 1 9", "1", "1:0/5"},
			{40, "undo 1 1", "true", "1:1/5"},
			{99, "take 1", "1: 0", "1:0/5"},
		},
		"future tokens end at the deadline, too": {
			{0, "dated 4 25 0 1 20 10", "", "1:4/4"},
			{0, "when 1", "20", "1:4/4"},
			{0, "when 2", "never", "1:4/4"},
			{24, "avail", "1", "1:4/4"},
			{25, "take 1", "no", "1:4/4"},
		},
		"the soonest of several leases counts": {
			{0, "dated 3 100 0 3 50 0", "", "1:3/3"},
			{0, "dated 3 100 0 1 20 10", "", "1:3/3 2:3/3"},
			{0, "when 1", "20", "1:3/3 2:3/3"},
			{0, "when 3", "40", "1:3/3 2:3/3"},
			{20, "take 1", "2: 0", "1:3/3 2:2/3"},
			{50, "take 3", "1: 0", "1:0/3 2:2/3"},
		},
		"the low-water mark fires once": {
			{0, "add 10 100", "", "1:10/10"},
			{0, "low 1 0", "false", "1:10/10"},
			{0, "arm 4", "", "1:10/10"},
			{0, "low 1 5", "false", "1:10/10"},
			{0, "low 1 4", "true", "1:10/10"},
			{0, "low 1 3", "false", "1:10/10"},
			{0, "arm 4", "", "1:10/10"},
			{0, "low 1 0", "true", "1:10/10"},
		},
		"the mark of the bucket is on the lease that will be in use": {
			{0, "add 5 100", "", "1:5/5"},
			{0, "add 10 100", "", "1:5/5 2:10/10"},
			{0, "arm 7", "", "1:5/5 2:10/10"}, // when the second is at 7
			{0, "low 1 0", "false", "1:5/5 2:10/10"},
			{0, "low 2 8", "false", "1:5/5 2:10/10"},
			{0, "low 2 7", "true", "1:5/5 2:10/10"},
			{0, "arm 12", "", "1:5/5 2:10/10"}, // when the first is at 2
			{0, "low 2 0", "false", "1:5/5 2:10/10"},
			{0, "low 1 3", "false", "1:5/5 2:10/10"},
			{0, "low 1 2", "true", "1:5/5 2:10/10"},
			{0, "arm 99", "", "1:5/5 2:10/10"}, // at once
			{0, "low 2 0", "false", "1:5/5 2:10/10"},
			{0, "low 1 4", "true", "1:5/5 2:10/10"},
			{0, "arm 7", "", "1:5/5 2:10/10"},
			{0, "arm 12", "", "1:5/5 2:10/10"}, // moves from the second to the first
			{0, "low 2 0", "false", "1:5/5 2:10/10"},
			{0, "low 1 2", "true", "1:5/5 2:10/10"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b bench
			for i, s := range steps {
				says := b.do(t, s.at, s.do)
				require.Equal(t, s.says, says, "step %d, %q at %d", i, s.do, s.at)
				require.Equal(t, s.state, b.bucket.String(), "step %d, %q at %d", i, s.do, s.at)
			}
		})
	}
}

func TestBetweenIsWhatThereIsAtSomeTime(t *testing.T) {
	var b localbucket.Bucket
	b.Add(localbucket.NewLease(localbucket.Grant{Tokens: 3, Ready: 3, Deadline: 100}))
	b.Add(localbucket.NewLease(localbucket.Grant{Tokens: 5, Ready: 1, Next: 1, From: 60, Spacing: 10, Deadline: 200}))
	for _, tt := range []struct{ now, late, fewest, most int64 }{
		{0, 0, 4, 4},
		{0, 60, 4, 5},    // one becomes ready
		{60, 99, 5, 8},   // and three more
		{60, 100, 2, 8},  // three end, which were there before
		{100, 150, 5, 5}, // they are gone
		{0, 200, 0, 8},   // all end, but not before all were ready
		{200, 300, 0, 0},
	} {
		fewest, most := b.Between(tt.now, tt.late)
		assert.Equal(t, tt.fewest, fewest, "%+v", tt)
		assert.Equal(t, tt.most, most, "%+v", tt)
	}
}

func TestSpentCountsWhatIsNotLeft(t *testing.T) {
	l := localbucket.NewLease(localbucket.Grant{Tokens: 5, Ready: 5, Deadline: 10})
	l.Take(0, 1)
	l.Take(0, 2)
	assert.Equal(t, int64(3), l.Spent())
	l.Undo(2)
	assert.Equal(t, int64(1), l.Spent())
	l.Take(20, 1)
	assert.Equal(t, int64(1), l.Spent(), "past the deadline nothing is spent")
}

func TestTakeDoesNotAllocate(t *testing.T) {
	var b localbucket.Bucket
	b.Add(localbucket.NewLease(localbucket.Grant{Tokens: 2, Ready: 2, Deadline: 10}))
	b.Add(localbucket.NewLease(localbucket.Grant{Tokens: 1e9, Ready: 1e9, Deadline: 10}))
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		b.Take(1, 1)
		b.Take(1, 3)
		b.Available(1)
		b.Left(1)
		b.When(1, 5)
	}))
}
