package precheck_test

import (
	"math"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/precheck"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	ms  = int64(time.Millisecond)
	sec = int64(time.Second)
)

// perSecond is a rate in tokens per nanosecond.
func perSecond(n float64) float64 { return n / 1e9 }

// A caller may have read the clock before the question was sent that it is judged by.
func TestWhatThereIsIsNotRefusedToAnEarlierTime(t *testing.T) {
	for _, level := range []float64{1, 1.5, 3} {
		m := precheck.Mark{Level: level, Sent: 10 * ms, Received: 12 * ms, Rate: perSecond(1000), Capacity: 20, Cap: 20}
		m.Ready()
		for _, at := range []int64{0, 7 * ms, 9 * ms, 10*ms - 1} {
			assert.False(t, m.Refuses(at, 1), "%v at %v", level, at)
			_, one := m.One(at, at)
			assert.False(t, one, "%v at %v", level, at)
			assert.True(t, m.Refuses(at, 4))
		}
	}
}

func TestRefuses(t *testing.T) {
	empty := precheck.Mark{Level: 0, Sent: 0, Received: 2 * ms, Rate: perSecond(10), Capacity: 20, Cap: 20}
	debt := empty
	debt.Level = -5
	still := precheck.Mark{Level: 3, Capacity: 20, Cap: 20}
	capped := empty // by what this replica spent and has yet to report
	capped.Cap = 12
	for _, tt := range []struct {
		name     string
		mark     precheck.Mark
		at, cost int64
		refuses  bool
	}{
		{"nothing is there", empty, 0, 1, true},
		{"a token needs 100 ms, 99.5 if the store's clock is quick", empty, 99 * ms, 1, true},
		{"the store may have it", empty, 99*ms + 503_000, 1, false},
		{"for every cost, two", empty, 198 * ms, 2, true},
		{"two", empty, 199*ms + 10_000, 2, false},
		{"nineteen", empty, 1890 * ms, 19, true},
		{"nineteen later", empty, 1891 * ms, 19, false},
		{"the capacity", empty, 4 * sec, 20, false},
		{"a debt comes first", debt, 597 * ms, 1, true},
		{"then a token", debt, 598 * ms, 1, false},
		{"what is there passes", still, 0, 3, false},
		{"and no more", still, 0, 4, true},
		{"for as long as an answer is believed", still, 5 * sec, 4, true},
		{"and no longer", still, 5*sec + 1, 4, false},
		{"nor a debt", debt, 5*sec + 1, 1, false},
		{"what is in hand is not refused for a debt", debt, 0, 0, false},
		{"nor more than that", debt, 0, -2, false},
		{"up to where the refill stops", capped, 0, 12, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.refuses, tt.mark.Refuses(tt.at, tt.cost))
		})
	}
	assert.True(t, capped.Reachable(12), "where the refill stops")
	assert.False(t, capped.Reachable(13), "above it a report is needed first")
	assert.InDelta(t, 20, empty.Most(1000*sec), 0, "no more than the capacity")
	var none *precheck.Mark
	assert.False(t, none.Refuses(0, math.MaxInt64), "without an answer nothing is refused")
	assert.Nil(t, none.Plus(3))
}

func TestAfter(t *testing.T) {
	const late = precheck.Resolution // what the store's clock may be behind
	mark := precheck.Mark{Level: 0.5, Sent: 0, Received: 10 * ms, Rate: perSecond(10), Capacity: 20, Cap: 20}
	held := mark // leases that are out hold the bucket down
	held.Cost, held.Wait = 5, 3*sec
	asked := mark
	asked.Ask = 90 * ms
	for _, tt := range []struct {
		name     string
		mark     precheck.Mark
		at, cost int64
		after    int64
	}{
		{"from the answer on", mark, 10 * ms, 1, 50*ms + late},
		{"less as time goes", mark, 40 * ms, 1, 20*ms + late},
		{"rounded up", mark, 10*ms + 1, 1, 50*ms + late - 1},
		{"now", mark, 60*ms + late, 1, 0},
		{"past", mark, 70 * ms, 1, 0},
		{"two", mark, 10 * ms, 2, 150*ms + late},
		{"above the capacity", mark, 0, 21, precheck.Never},
		{"the refused cost waits as it was told", held, 10 * ms, 5, 3*sec + late},
		{"so do dearer ones", held, 1010 * ms, 6, 2*sec + late},
		{"a dearer one waits for its own tokens, too", held, 10 * ms, 20, 3*sec + late},
		{"cheaper ones do not", held, 10 * ms, 4, 350*ms + late},
		{"not before the store is asked again", asked, 10 * ms, 1, 80 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.after, tt.mark.After(tt.at, tt.cost))
		})
	}
	still := precheck.Mark{Level: 3, Capacity: 20}
	assert.Zero(t, still.After(0, 3))
	assert.Equal(t, int64(precheck.Never), still.After(0, 4), "no refill")
	third := precheck.Mark{Rate: perSecond(3), Capacity: 9}
	assert.Equal(t, int64(333_333_334)+late, third.After(0, 1), "rounded up: no client may come too early")
	slow := precheck.Mark{Rate: 1e-12 / 1e9, Capacity: 9}
	assert.Equal(t, int64(precheck.Never-1), slow.After(0, 1), "too long for the type, yet not never")
}

func TestPlusIsTheMarkWithMoreTokens(t *testing.T) {
	m := precheck.Mark{Level: 1, Sent: 5, Received: 7, Rate: perSecond(1), Capacity: 20, Cap: 12, Cost: 3, Wait: 9, Ask: 11}
	p := m.Plus(4)
	want := m
	want.Level, want.Cap = 5, 16
	want.Cost, want.Wait = 0, 0 // the tokens may have been the reason
	assert.Equal(t, want.Ready(), p)
	assert.InDelta(t, 1.0, m.Level, 0, "a mark in use is not changed")
}

// TestOneIsRefusesAndAfter: what One says of a cost of 1, the arithmetic says, and it says all but the last few nanoseconds.
func TestOneIsRefusesAndAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.OneOf(rapid.Just(0.0), rapid.Just(1e-12), rapid.Float64Range(0, 1e6)).Draw(t, "rate")
		sent := rapid.Int64Range(0, 1<<50).Draw(t, "sent")
		m := &precheck.Mark{
			Level: rapid.OneOf(rapid.Float64Range(-2, 2), rapid.Float64Range(-1e9, 1e3)).Draw(t, "level"),
			Rate:  perSecond(rate), Capacity: rapid.Int64Range(0, 1000).Draw(t, "capacity"),
			Sent: sent, Received: sent + rapid.Int64Range(0, sec).Draw(t, "trip"),
			Cost: rapid.Int64Range(0, 2).Draw(t, "cost"), Wait: rapid.Int64Range(0, sec).Draw(t, "wait"),
		}
		m.Cap = rapid.SampledFrom([]float64{0, 0.5, 1, float64(m.Capacity)}).Draw(t, "cap")
		if rapid.Bool().Draw(t, "floor") {
			m.Ask = m.Received + rapid.Int64Range(0, 10*ms).Draw(t, "ask")
		}
		m.Ready()
		late := sent + rapid.OneOf(rapid.Int64Range(0, 7*sec), rapid.Int64Range(0, 10*ms)).Draw(t, "late")
		now := max(0, late-rapid.Int64Range(0, 5*ms).Draw(t, "behind"))
		wait, refused := m.One(now, late)
		known := m.Refuses(late, 1) && m.Reachable(1) && m.Capacity >= 1
		switch {
		case refused && !known:
			t.Fatalf("refused by One alone: %+v", *m)
		case refused:
			after := m.After(now, 1)
			if after == precheck.Never || wait == precheck.Never {
				require.Equal(t, after, wait)
			} else {
				require.InDelta(t, min(float64(after), 1e18), min(float64(wait), 1e18), 2+1e-12*float64(after))
			}
		case known && m.Refuses(late+1000, 1):
			t.Fatalf("not refused by One: %+v", *m)
		}
	})
}

func TestOneOfNothing(t *testing.T) {
	var none *precheck.Mark
	_, refused := none.One(0, 0)
	assert.False(t, refused)
	_, refused = (&precheck.Mark{Capacity: 5, Cap: 5}).One(0, 0)
	assert.False(t, refused, "a mark that is not made ready")
}

func TestRefusesDoesNotAllocate(t *testing.T) {
	m := precheck.Mark{Level: 0, Rate: perSecond(1), Capacity: 20, Cap: 20}
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		m.Refuses(5, 1)
		m.After(5, 1)
	}))
}

// store is a bucket that runs on a clock of its own, quicker or slower than the replica's.
type store struct {
	level, rate, capacity float64
	drift                 float64
	now                   int64 // the replica's
}

func (s *store) advance(d int64) {
	s.level = min(s.capacity, s.level+s.rate*float64(d)*(1+s.drift))
	s.now += d
}

func (s *store) grants(cost int64) bool { return s.level+1e-9 >= float64(cost) }

// TestNeverWrong lets other replicas take from a bucket at random after an answer. Whatever they take, however late the
// answer came and however the clocks differ within Drift, the mark may not refuse what the bucket would grant. And it is no
// looser than that: what is above the bound is refused.
func TestNeverWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 1000).Draw(t, "capacity")
		s := &store{
			capacity: float64(capacity),
			level:    rapid.Float64Range(-50, float64(capacity)).Draw(t, "level"),
			rate:     perSecond(rapid.Float64Range(0, 500).Draw(t, "rate")),
			drift:    rapid.Float64Range(-precheck.Drift, precheck.Drift).Draw(t, "drift"),
			now:      rapid.Int64Range(0, 1<<50).Draw(t, "start"),
		}
		m := &precheck.Mark{Rate: s.rate, Capacity: capacity, Cap: float64(capacity), Sent: s.now}
		trip := rapid.Int64Range(0, 100*ms)
		s.advance(trip.Draw(t, "there"))
		m.Level = s.level
		s.advance(trip.Draw(t, "back"))
		m.Received = s.now

		alone := true
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) { s.advance(rapid.Int64Range(0, sec).Draw(t, "time")) },
			"taken by others": func(t *rapid.T) {
				s.level -= rapid.Float64Range(0, 20).Draw(t, "tokens")
				alone = false
			},
			"given back": func(t *rapid.T) {
				n := rapid.Int64Range(1, 20).Draw(t, "tokens")
				s.level = min(s.capacity, s.level+float64(n))
				m = m.Plus(n)
			},
			"": func(t *rapid.T) {
				for _, cost := range []int64{1, 2, 3, 10, capacity / 2, capacity - 1, capacity} {
					if cost < 1 || cost > capacity {
						continue
					}
					refuses := m.Refuses(s.now, cost)
					if refuses && s.grants(cost) {
						t.Fatalf("refused %d of %v at %v", cost, *m, *s)
					}
					age := s.now - m.Sent
					bound := m.Level + m.Rate*float64(age+precheck.Resolution)*(1+precheck.Drift)
					if !refuses && age <= precheck.Hold && float64(cost) > bound+1e-5 {
						t.Fatalf("not refused: %d, bound %v", cost, bound)
					}
				}
				if alone {
					require.GreaterOrEqual(t, m.Most(s.now)+1e-6, s.level)
				}
			},
		})
	})
}

// TestWhoWaitsIsAdmitted: where the clocks agree and nobody else takes anything, waiting for After is enough.
func TestWhoWaitsIsAdmitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 1000).Draw(t, "capacity")
		s := &store{
			capacity: float64(capacity),
			level:    rapid.Float64Range(-50, float64(capacity)).Draw(t, "level"),
			rate:     perSecond(rapid.Float64Range(0.01, 500).Draw(t, "rate")),
		}
		m := &precheck.Mark{Rate: s.rate, Capacity: capacity, Cap: float64(capacity), Sent: s.now}
		s.advance(rapid.Int64Range(0, 100*ms).Draw(t, "there"))
		m.Level = s.level
		s.advance(rapid.Int64Range(0, 100*ms).Draw(t, "back"))
		m.Received = s.now
		s.advance(rapid.Int64Range(0, 4*sec).Draw(t, "time"))
		cost := rapid.Int64Range(1, capacity).Draw(t, "cost")

		after := m.After(s.now, cost)
		require.GreaterOrEqual(t, after, int64(0))
		if after == 0 {
			return
		}
		s.advance(after)
		require.InDelta(t, 0, min(0, s.level-float64(cost)), 1e-6, "cost %d after %v", cost, time.Duration(after))
		require.False(t, m.Refuses(s.now, cost))
	})
}

// A cheap call after a dear one was refused is judged by the level.
func TestHolds(t *testing.T) {
	m := &precheck.Mark{Level: 7.5, Capacity: 10}
	assert.True(t, m.Holds(7))
	assert.False(t, m.Holds(8))
	var none *precheck.Mark
	assert.False(t, none.Holds(1))
}
