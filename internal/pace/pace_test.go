package pace

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/internal/ratefields"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	server = "server"
	route  = "/calls"
	second = time.Second
	milli  = time.Millisecond
)

// of is what an answer tells of a limit: r, t, q and w in seconds.
func of(name string, r int64, t time.Duration, q int64, w time.Duration) ratefields.Limit {
	return ratefields.Limit{Key: name, Remaining: r, Window: t * second, Quota: q, Period: w * second}
}

// held is how long a call is held, which has a minute.
func held(t *testing.T, p *Pacer, route string) time.Duration {
	t.Helper()
	start := time.Now()
	told, ok := p.Hold(t.Context(), server, route, time.Minute)
	assert.True(t, ok)
	assert.Equal(t, told, time.Since(start))
	return told
}

// within is whether d is 10 to 25 % more than want, less what has passed of it.
func within(t *testing.T, want, passed, d time.Duration) {
	t.Helper()
	if want == 0 {
		assert.Zero(t, d)
		return
	}
	assert.GreaterOrEqual(t, d, want*110/100-passed)
	assert.LessOrEqual(t, d, want*125/100-passed)
}

func TestNext(t *testing.T) {
	for name, tt := range map[string]struct {
		limits  []ratefields.Limit
		refused time.Duration // what the refusal says to wait
		took    time.Duration // from the call to its answer
		idle    time.Duration // from the answer to the next call
		want    time.Duration // from the call to the next one, without jitter
		then    time.Duration // from that to the one after it
	}{
		"nothing told":            {},
		"more than half":          {limits: []ratefields.Limit{of("a", 51, 51, 100, 100)}},
		"half":                    {limits: []ratefields.Limit{of("a", 50, 50, 100, 100)}, want: second, then: second},
		"no quota told":           {limits: []ratefields.Limit{of("a", 50, 50, 0, 0)}, want: second, then: second},
		"no period told":          {limits: []ratefields.Limit{of("a", 50, 50, 100, 0)}, want: second, then: second},
		"nothing, no period":      {limits: []ratefields.Limit{of("a", 0, 10, 100, 0)}, want: 10 * second, then: 10 * second},
		"nothing":                 {limits: []ratefields.Limit{of("a", 0, 20, 100, 2000)}, want: 20 * second, then: 20 * second},
		"no window left":          {limits: []ratefields.Limit{of("a", 0, 0, 100, 100)}},
		"most of a window's":      {limits: []ratefields.Limit{of("a", 1, 30, 100, 60)}, want: 30 * second, then: 30 * second},
		"all of a window's":       {limits: []ratefields.Limit{of("a", 0, 30, 100, 60)}, want: 30 * second, then: 600 * milli},
		"a quick bucket":          {limits: []ratefields.Limit{of("a", 2, 1, 40, 2)}, want: 50 * milli, then: 50 * milli},
		"a quick, empty bucket":   {limits: []ratefields.Limit{of("a", 0, 1, 40, 2)}, want: second, then: 50 * milli},
		"the slowest":             {limits: []ratefields.Limit{of("a", 5, 5, 10, 10), of("b", 9, 18, 50, 100), of("c", 9, 9, 9, 9)}, want: 2 * second, then: 2 * second},
		"a slow answer":           {limits: []ratefields.Limit{of("a", 5, 10, 50, 100)}, took: second, want: 2 * second, then: 2 * second},
		"a very slow answer":      {limits: []ratefields.Limit{of("a", 5, 10, 50, 100)}, took: time.Minute, then: 2 * second},
		"nobody came for a while": {limits: []ratefields.Limit{of("a", 0, 20, 100, 2000)}, idle: 21 * second, then: 20 * second},
		"refused":                 {limits: []ratefields.Limit{of("a", 0, 5, 10, 50)}, refused: 5 * second, want: 5 * second, then: 5 * second},
		"refused to the point":    {limits: []ratefields.Limit{of("a", 0, 1, 40, 2)}, refused: 50 * milli, want: 50 * milli, then: 50 * milli},
		"refused for its cost":    {limits: []ratefields.Limit{of("a", 3, 60, 10, 10)}, refused: time.Minute, want: second, then: second},
		"another one refused":     {limits: []ratefields.Limit{of("a", 3, 6, 10, 20), of("b", 0, 30, 9, 270)}, refused: 30 * second, want: 30 * second, then: 30 * second},
		"refused for long":        {limits: []ratefields.Limit{of("a", 0, 3600, 1, 3600)}, refused: time.Hour}, // longer than a call has
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p Pacer
				assert.Zero(t, held(t, &p, route))
				left := time.Now()
				time.Sleep(tt.took)
				p.Learn(server, route, left, tt.refused, tt.limits)
				time.Sleep(tt.idle)
				passed := time.Since(left)
				if passed >= tt.want {
					tt.want = 0
				}
				within(t, tt.want, passed, held(t, &p, route))
				within(t, tt.then, 0, held(t, &p, route))
			})
		})
	}
}

// A refusal counts from its answer: the server decided later than the call left.
func TestRefusedCountsFromTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		left := time.Now()
		time.Sleep(300 * milli)
		p.Learn(server, route, left, second, []ratefields.Limit{of("a", 0, 1, 1, 1)})
		within(t, second, 0, held(t, &p, route))
	})
}

// What is held already stands, and what comes later queues behind it.
func TestLaterAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		start := time.Now()
		p.Learn(server, route, start, 0, []ratefields.Limit{of("a", 0, 10, 100, 1000)})
		first := make(chan time.Duration)
		go func() { first <- held(t, &p, route) }()
		synctest.Wait()
		time.Sleep(second)
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 40, 40, 100, 100)})
		second := held(t, &p, route) + time.Second
		one := <-first
		within(t, 10*time.Second, 0, one)
		within(t, time.Second, 0, second-one)
	})
}

// Nobody is held any more once there is plenty, nor for what was told before that.
func TestPlentyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 0, 40, 100, 100)})
		time.Sleep(milli)
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 100, 100, 100, 100)}) // it was reset
		assert.Zero(t, held(t, &p, route))
		assert.Zero(t, held(t, &p, route))
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 50, 50, 100, 100)})
		within(t, time.Second, 0, held(t, &p, route))

		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 0, 40, 100, 100)})
		var one sync.WaitGroup
		one.Go(func() { within(t, 40*time.Second, 0, held(t, &p, route)) })
		synctest.Wait()
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 100, 100, 100, 100)})
		assert.Zero(t, held(t, &p, route), "it does not queue behind one that is held")
		one.Wait()
	})
}

// An answer that tells of no limit is that of a cache, or of a server in an outage.
func TestNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 0, 20, 100, 2000)})
		p.Learn(server, route, time.Now(), 0, nil)
		within(t, 20*time.Second, 0, held(t, &p, route))
	})
}

// In a burst, answers to those that were admitted come after those to others that were refused.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		early := time.Now()
		time.Sleep(milli)
		late := time.Now()
		time.Sleep(milli)
		p.Learn(server, route, early, second, []ratefields.Limit{of("a", 0, 1, 40, 40)})
		p.Learn(server, route, late, 0, []ratefields.Limit{of("a", 30, 30, 40, 40)})
		within(t, second, 0, held(t, &p, route))
	})
}

func TestOvertakenAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		early := time.Now()
		time.Sleep(milli)
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 0, 20, 100, 2000)})
		p.Learn(server, route, early, 0, []ratefields.Limit{of("a", 90, 90, 100, 100)})
		assert.Greater(t, held(t, &p, route), 20*time.Second)
	})
}

// Of calls that are under way together, the one that left last may be decided first: what the others are told is newer, and less.
func TestDecidedOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		early := time.Now()
		time.Sleep(milli)
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 90, 90, 100, 100)})
		p.Learn(server, route, early, 0, []ratefields.Limit{of("a", 40, 40, 100, 100)})
		p.Learn(server, route, early, 0, []ratefields.Limit{of("a", 50, 50, 100, 100)})
		assert.Positive(t, held(t, &p, route))
		within(t, time.Second, 0, held(t, &p, route))
		time.Sleep(milli)
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 60, 60, 100, 100)}) // in part refilled
		assert.Zero(t, held(t, &p, route))
	})
}

// What is known is in force until more than half of the quota would be there again if nobody called, and no longer than a window
// where the quota is not known.
func TestOutOfDate(t *testing.T) {
	for limit, until := range map[ratefields.Limit]time.Duration{
		of("a", 0, 10, 9, 90):   12500*milli + 50*second, // the next call may leave, and half is there 5 calls later
		of("a", 4, 40, 9, 90):   12500*milli + 10*second,
		of("a", 0, 20, 0, 0):    45 * second,
		of("a", 1, 59, 100, 60): 73750*milli + 60*second, // by then the window is over
	} {
		for _, early := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				var p Pacer
				p.Learn(server, route, time.Now(), 0, []ratefields.Limit{limit})
				idle := until - milli
				if !early {
					idle = until + milli
				}
				time.Sleep(idle)
				p.Hold(t.Context(), server, route, time.Hour)
				second, ok := p.Hold(t.Context(), server, route, time.Hour)
				assert.True(t, ok)
				assert.Equal(t, early, second > 0, "%+v", limit)
			})
		}
	}
}

// Each limit has its own pace, and a call waits for those that the last answer on its route told of.
func TestRoutesShareLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const exports, health = "/exports", "/health"
		var p Pacer
		calls, dear := of("calls", 40, 40, 100, 100), of("exports", 0, 30, 10, 300)
		p.Learn(server, exports, time.Now(), 0, []ratefields.Limit{calls, dear})
		time.Sleep(milli)
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{calls})
		p.Learn(server, health, time.Now(), 0, nil)
		assert.Zero(t, held(t, &p, health), "no limit is told of")

		var all sync.WaitGroup
		all.Go(func() { within(t, 30*time.Second, milli, held(t, &p, exports)) })
		synctest.Wait()
		// The one that is held took the first turn of calls, and this takes the second: it does not queue behind it.
		got := held(t, &p, route)
		assert.GreaterOrEqual(t, got, 2200*milli-milli)
		assert.LessOrEqual(t, got, 2500*milli)
		all.Wait()
	})
}

// What a refusal says to wait is of the limit that refused. Others of the same answer go on at their own pace.
func TestARefusalIsOfOneLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("calls", 90, 90, 100, 100)})
		p.Learn(server, "/exports", time.Now(), 30*time.Second, []ratefields.Limit{
			of("calls", 0, 2, 100, 100), of("exports", 0, 30, 10, 300),
		})
		within(t, 2*time.Second, 0, held(t, &p, route))
	})
}

// The same limit of another partition is another limit.
func TestPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		for _, pk := range []string{"a\x001", "a\x002"} {
			p.Learn(server, "/"+pk, time.Now(), 0, []ratefields.Limit{of(pk, 0, 10, 100, 1000)})
		}
		p.Learn(server, "/a\x002", time.Now(), 0, []ratefields.Limit{of("a\x002", 90, 900, 100, 1000)})
		assert.Zero(t, held(t, &p, "/a\x002"))
		within(t, 10*time.Second, 0, held(t, &p, "/a\x001"))
	})
}

func TestTargetsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		p.Learn("other", route, time.Now(), 0, []ratefields.Limit{of("a", 0, 10, 100, 1000)})
		assert.Zero(t, held(t, &p, route))
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 90, 900, 100, 1000)})
		d, ok := p.Hold(t.Context(), "other", route, time.Minute)
		assert.True(t, ok)
		within(t, 10*time.Second, 0, d)
	})
}

func TestHoldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 0, 20, 100, 2000)})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for range 3 {
			d, ok := p.Hold(t.Context(), server, route, 20*time.Second)
			assert.True(t, ok)
			assert.Zero(t, d, "longer than it may be held")
			d, ok = p.Hold(ctx, server, route, time.Hour)
			assert.True(t, ok)
			assert.Zero(t, d, "past its deadline")
		}
		within(t, 20*time.Second, 0, held(t, &p, route)) // they took no turn

		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, ok := p.Hold(cancelled, server, route, time.Hour)
		assert.False(t, ok)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// A crowd at once: each is held behind the one before, until it would be for too long.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 0, 10, 100, 1000)})
		var (
			all  sync.WaitGroup
			mu   sync.Mutex
			turn = map[time.Duration]int{}
		)
		for range 100 {
			all.Go(func() {
				d := held(t, &p, route)
				mu.Lock()
				defer mu.Unlock()
				turn[d]++
			})
		}
		all.Wait()
		at := 0
		for d, n := range turn {
			if d > 0 {
				assert.Equal(t, 1, n)
				at++
			}
		}
		assert.GreaterOrEqual(t, at, 4) // of 10 to 12.5 s, in a minute
		assert.LessOrEqual(t, at, 5)
		assert.Equal(t, 100-at, turn[0])
	})
}

// Memory does not grow with what servers tell, and what is known of one is not lost by being told again.
func TestMemory(t *testing.T) {
	var p Pacer
	low := []ratefields.Limit{of("a", 0, 20, 100, 2000)}
	for i := range 5000 {
		p.Learn(fmt.Sprint(i), route, time.Now(), 0, low)
	}
	require.Len(t, p.limits, maxKnown)
	require.Len(t, p.routes, maxKnown)
	for range 3 {
		for name := range p.routes {
			p.routes[name] = []*limit{}
		}
		for i := range 5000 {
			if _, known := p.routes[key(fmt.Sprint(i), route)]; known {
				p.Learn(fmt.Sprint(i), route, time.Now(), 0, low)
			}
		}
		require.Len(t, p.routes, maxKnown)
		for _, limits := range p.routes {
			require.Len(t, limits, 1)
		}
	}
}

func TestNilPacer(t *testing.T) {
	var p *Pacer
	d, ok := p.Hold(t.Context(), server, route, math.MaxInt64)
	require.True(t, ok)
	require.Zero(t, d)
	p.Learn(server, route, time.Now(), 0, []ratefields.Limit{of("a", 0, 10, 100, 1000)})
}

// For the race detector, and for arithmetic at the ends of its range.
func TestManyGoroutines(t *testing.T) {
	var (
		p   Pacer
		all sync.WaitGroup
	)
	const most = 999_999_999_999_999
	for i := range 8 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			for j := range int64(500) {
				p.Learn(server, fmt.Sprint(j%3), time.Now(), time.Duration(j%2)*time.Second, []ratefields.Limit{
					of("a", j%7, 1, 10, 10), {Key: fmt.Sprint(i), Remaining: most * (j % 2), Quota: most, Window: math.MaxInt64, Period: math.MaxInt64},
				})
				p.Hold(ctx, server, fmt.Sprint(j%3), time.Hour)
			}
		})
	}
	all.Wait()
}
