// Package precheck keeps what a shared bucket can hold at most, as far as its last answer tells, so that calls which cannot
// pass are refused without asking.
//
// It is an upper bound: a refusal by it is never wrong about the bucket, except for tokens that other replicas gave back
// since. It says nothing about what the bucket does hold.
package precheck

import "math"

// Hold is the longest, in nanoseconds, that an answer is believed: a reset or a return by another replica is seen after it.
const Hold = int64(5e9)

// Drift is by how much a clock may run slower than the store's without the upper bound being wrong.
const Drift = 0.005

// Never is the wait for what can never pass.
const Never = math.MaxInt64

// Resolution is by how much, in nanoseconds, the store's clock may be behind what it shows: it cuts off what is below a
// microsecond, at the answer and at the next question.
const Resolution = int64(2000)

// epsilon is more than the deficit that the store counts as none.
const epsilon = 1e-6

// A Mark is the last answer of the store. Times are in nanoseconds of any monotonic clock. A Mark is not changed once it is
// in use.
type Mark struct {
	// What Ready worked out for a cost of 1: until when it is refused, and when it could pass. Both 0 if that is for
	// Refuses and After to say. They come first, to be on one cache line.
	until, due int64

	Level    float64 // tokens left in the bucket by the answer
	Sent     int64   // when the question was sent: the level is at least as old
	Received int64   // when the answer came: the level is at most as old
	Rate     float64 // refill in tokens per nanosecond
	Capacity int64

	// Cap is where the bucket's refill stops as long as this replica does not report what it spent. No time can be told at
	// which a cost above it could pass: it has to be taken to the store, with the report.
	Cap float64

	// A refusal for a reason that the level does not tell (leases that are out hold the bucket down): a cost of at
	// least Cost cannot pass before Received + Wait. 0 if there was none.
	Cost, Wait int64

	// The store is not asked again before this moment. 0 if it may be at once.
	Ask int64
}

// Ready works out what [Mark.One] answers with, and returns m. It is called before m is in use.
func (m *Mark) Ready() *Mark {
	m.until, m.due = 0, 0
	if !m.Reachable(1) || m.Capacity < 1 {
		return m
	}
	until := float64(m.Sent + Hold)
	if m.Rate > 0 {
		until = min(until, float64(m.Sent-Resolution)+(1-epsilon-m.Level)/(m.Rate*(1+Drift)))
	}
	due := m.After(m.Received, 1)
	if due < Never {
		due = m.Received + min(due, Never-1-m.Received)
	}
	if u := int64(math.Floor(until)) - 1; m.Refuses(u, 1) {
		m.until, m.due = u+1, due
	}
	return m
}

// One reports whether a cost of 1, beyond what is in hand, is known not to pass at a time that is late at most, and how long after
// now it could. It is Refuses and After for most calls, without their arithmetic; if it says no, they have to be asked. A nil
// Mark refuses nothing.
func (m *Mark) One(now, late int64) (wait int64, refused bool) {
	if m == nil || late >= m.until {
		return 0, false
	}
	if m.due == Never {
		return Never, true
	}
	return max(0, m.due-now), true
}

// Most is the most tokens that the bucket can hold now. A caller that read the clock before the question was sent is judged by its
// answer all the same, which has not shrunk since.
func (m *Mark) Most(now int64) float64 {
	grown := m.Level + m.Rate*float64(max(0, now-m.Sent)+Resolution)*(1+Drift)
	return min(float64(m.Capacity), grown)
}

// Refuses reports whether cost, beyond what is in hand, cannot pass now. A nil Mark refuses nothing, and a cost of 0 or less,
// which is in hand, is not refused for a bucket in debt.
func (m *Mark) Refuses(now, cost int64) bool {
	return m != nil && cost > 0 && now-m.Sent <= Hold && float64(cost) > m.Most(now)+epsilon
}

// Holds reports whether the bucket held cost by the answer itself: a cheap call is not put off because a dear one was refused.
func (m *Mark) Holds(cost int64) bool { return m != nil && float64(cost) <= m.Level+epsilon }

// Reachable reports whether the bucket can come to hold cost without a report of this replica.
func (m *Mark) Reachable(cost int64) bool { return float64(cost) <= m.Cap }

// After is how long from now, in nanoseconds and rounded up, until cost could pass if nobody else took anything; [Never] if
// it cannot.
func (m *Mark) After(now, cost int64) int64 {
	if cost > m.Capacity {
		return Never
	}
	if !m.Reachable(cost) && m.Rate > 0 {
		return m.afterReport(now, cost)
	}
	wait := float64(0)
	if missing := float64(cost) - m.Level; missing > 0 {
		if m.Rate <= 0 {
			return Never
		}
		wait = missing/m.Rate + float64(Resolution)
	}
	if m.Cost > 0 && cost >= m.Cost {
		wait = max(wait, float64(m.Wait)+float64(Resolution))
	}
	return bounded(max(math.Ceil(wait)-float64(now-m.Received), float64(m.Ask-now)))
}

// afterReport is After for a cost above Cap. The refill stops at Cap until the next question, which brings the report.
func (m *Mark) afterReport(now, cost int64) int64 {
	ask := max(now, m.Ask)
	level := min(m.Cap, m.Level+m.Rate*float64(ask-m.Received))
	return bounded(float64(ask-now) + math.Ceil(max(0, float64(cost)-level)/m.Rate) + float64(Resolution))
}

// bounded is a wait as an integer: 0 or more, and where it is too long for the type, not yet never.
func bounded(wait float64) int64 {
	switch {
	case wait <= 0:
		return 0
	case wait >= math.MaxInt64:
		return Never - 1
	}
	return int64(wait)
}

// Plus is the mark with n more tokens: some that this replica gives back itself.
func (m *Mark) Plus(n int64) *Mark {
	if m == nil {
		return nil
	}
	more := *m
	more.Level += float64(n)
	more.Cap += float64(n)
	more.Cost, more.Wait = 0, 0 // they may have been what held the bucket down
	return more.Ready()
}
