package lease

import (
	"math"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kept are books that were brought up to at with what was asked for ever.
func (b *books) asked(at, tokens, calls int64, tau time.Duration) {
	b.ask(tokens, calls)
	b.keep(at, 0, asked{}, quota.Limit{}, part{}, tau)
}

func TestDemandIsAnAverageOverTime(t *testing.T) {
	const tau = 8 * time.Second
	half := time.Duration(halfLife(tau))

	type step struct {
		at            time.Duration
		tokens, calls int64
		wantTokens    float64 // in a half-life
		wantCalls     float64
	}
	for name, steps := range map[string][]step{
		"the first call starts the first interval": {
			{0, 1, 1, 0, 0},
			{half, 0, 0, 0, 0},
		},
		"of several first calls one does": {
			{0, 30, 3, 0, 0},
			{half, 0, 0, 10, 1}, // 20 tokens of 2 calls in a half-life, by half
		},
		"what comes at the same moment tells no rate but is not lost": {
			{0, 1, 1, 0, 0},
			{0, 50, 5, 0, 0},
			{half, 50, 5, 50, 5},
			{half, 40, 4, 50, 5},
			{2 * half, 60, 6, 75, 7.5},
		},
		"after a half-life half of a new rate counts": {
			{0, 1, 1, 0, 0},
			{half, 100, 10, 50, 5},
			{2 * half, 100, 10, 75, 7.5},
			{3 * half, 100, 10, 87.5, 8.75},
			{4 * half, 0, 0, 43.75, 4.375},
			{6 * half, 0, 0, 43.75 / 4, 4.375 / 4},
		},
		"the interval does not matter": {
			{0, 1, 1, 0, 0},
			{2 * half, 200, 20, 75, 7.5},
			{4 * half, 0, 0, 75.0 / 4, 7.5 / 4},
		},
		"time does not go back": {
			{half, 1, 1, 0, 0},
			{0, 7, 1, 0, 0},
			{2 * half, 93, 9, 50, 5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b books
			b.begin()
			for i, s := range steps {
				b.asked(int64(s.at), s.tokens, s.calls, tau)
				assert.InDelta(t, s.wantTokens, float64(b.demand.tokens)*float64(half), 1e-4, "tokens of step %d", i)
				assert.InDelta(t, s.wantCalls, float64(b.demand.calls)*float64(half), 1e-5, "calls of step %d", i)
			}
		})
	}
}

func TestDemandSettlesAtTheRate(t *testing.T) {
	for _, tau := range []time.Duration{10 * time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		var d demand
		step := int64(halfLife(tau) / 7)
		for range int64(200) {
			d.observe(step, 30, 3, tau)
		}
		assert.InEpsilon(t, 30, float64(d.tokens)*float64(step), 1e-5, "tau %v", tau)
		assert.InEpsilon(t, 3, float64(d.calls)*float64(step), 1e-5, "tau %v", tau)
	}
}

// However quickly draws follow one another, the demand follows what is asked.
func TestDemandIsNotStuckBetweenQuickDraws(t *testing.T) {
	for _, tau := range []time.Duration{30 * time.Second, time.Hour} {
		var b books
		b.begin()
		step := int64(halfLife(tau)) / 20_000_000
		b.asked(0, 0, 0, tau)
		b.demand.calls = 1e-6
		for i := range int64(2_000_000) {
			if now := (i + 1) * step; b.stale(now, tau) {
				b.asked(now, 0, 0, tau)
			}
		}
		assert.InEpsilon(t, 1e-6*math.Exp2(-0.1), float64(b.demand.calls), 0.005, "tau %v", tau)
	}
}

func TestHalfLifeIsASecondToTau(t *testing.T) {
	for _, tau := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Hour} {
		assert.GreaterOrEqual(t, halfLife(tau), float64(time.Second), "tau %v", tau)
		assert.LessOrEqual(t, halfLife(tau), float64(tau), "tau %v", tau)
	}
	assert.InDelta(t, float64(10*time.Millisecond), halfLife(10*time.Millisecond), 0, "no longer than tau")
}

// expecting is the demand of a tenant that makes so many calls of a cost in a trust window, at an even pace.
func expecting(calls float64, cost int64, tau time.Duration) (d demand) {
	step := int64(float64(tau) / calls)
	for range int64(200) {
		d.observe(step, cost, 1, tau)
	}
	d.judge(tau)
	return d
}

func TestLeasingPaysFromFourCallsAWindowOn(t *testing.T) {
	const tau = 30 * time.Second
	for calls, want := range map[float64]bool{1000: true, 4.1: true, 3.9: false, 1: false, 0.1: false} {
		d := expecting(calls, 1000, tau)
		assert.Equal(t, want, d.pays, "%v calls a window", calls)
	}
	d := expecting(100, 1, tau)
	d.observe(int64(time.Hour), 0, 0, tau)
	d.judge(tau)
	assert.False(t, d.pays, "a tenant that has gone")
}

func TestTarget(t *testing.T) {
	limit := func(capacity int64) *Terms { return &Terms{Limit: quota.PerSecond(1, capacity)} }
	rate := func(tokens, calls float64) demand { // a second
		return demand{tokens: float32(tokens / 1e9), calls: float32(calls / 1e9), pays: calls*10 >= 4}
	}
	for _, tt := range []struct {
		name     string
		opts     Options
		capacity int64
		demand   demand
		level    float64
		want     int64
	}{
		{"half a window's demand", Options{}, 10_000, rate(100, 100), 0, 500},
		{"at most C/(2n), n = 4 if unknown", Options{}, 1000, rate(100, 100), 0, 125},
		{"C/(2n)", Options{Replicas: 10}, 1000, rate(100, 100), 0, 50},
		{"one replica holds half at most", Options{Replicas: 1}, 600, rate(100, 100), 0, 300},
		{"at least one where it pays", Options{}, 10_000, rate(0.1, 0.4), 0, 1},
		{"more than an int64 holds", Options{}, 8e15, rate(1e19, 100), 0, 1e15},
		{"one of a bucket of one", Options{}, 1, rate(100, 100), 0, 1},
		{"MaxHold", Options{MaxHold: 30}, 1000, rate(100, 100), 0, 30},
		{"a MaxHold above C/(2n)", Options{MaxHold: 700}, 1000, rate(1000, 100), 0, 700},
		{"nothing where it does not pay", Options{}, 1000, rate(0.3, 0.3), 899, 0},
		{"one where nobody misses it", Options{}, 1000, rate(0.3, 0.3), 900, 1},
		{"nothing of a bucket never seen", Options{}, 1000, demand{}, -1, 0},
		{"a fixed size holds from the first draw", Options{LeaseSize: 20}, 1000, demand{}, -1, 20},
		{"a fixed size above C/(2n)", Options{LeaseSize: 200}, 1000, demand{}, -1, 200},
		{"a fixed size and MaxHold", Options{LeaseSize: 20, MaxHold: 40}, 1000, rate(100, 100), 0, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.TTL = 10 * time.Second
			assert.Equal(t, tt.want, tt.opts.target(&tt.demand, limit(tt.capacity), tt.level))
		})
	}
}

func TestHorizon(t *testing.T) {
	for _, tt := range []struct {
		limit quota.Limit
		want  time.Duration
	}{
		{quota.PerSecond(100, 100), 125 * time.Millisecond}, // C/(8r)
		{quota.PerSecond(10, 800), 2500 * time.Millisecond}, // at most tau/4
		{quota.Limit{Capacity: 5}, 2500 * time.Millisecond},
		{quota.PerSecond(1e9, 1), floor}, // the least distance between draws
	} {
		o := Options{TTL: 10 * time.Second}
		assert.Equal(t, tt.want, o.horizon(&Terms{Limit: tt.limit}), "%v", tt.limit)
	}
}

func TestFraction(t *testing.T) {
	for _, tt := range []struct {
		f       float64
		n, want int64
	}{
		{0.1, 30, 3},
		{0.1, 10, 1},
		{0.1, 9, 0},
		{0.25, 1000, 250},
		{0.25, 3, 0},
		{1, 7, 7},
		{0, 7, 0},
		{0.7, 10, 7},
		{0.1, 70, 7},
		{0.3, 10, 3},
		{0.6, 5, 3},
		{1, quota.MaxTokens, quota.MaxTokens},
		{0.5, quota.MaxTokens, quota.MaxTokens / 2},
	} {
		assert.Equal(t, tt.want, fraction(tt.f, tt.n), "%v of %d", tt.f, tt.n)
	}
	for n := range int64(2000) {
		for hundredth := range int64(101) { // exact in integers
			require.Equal(t, n*hundredth/100, fraction(float64(hundredth)/100, n), "%d %% of %d", hundredth, n)
		}
	}
}

func TestTerms(t *testing.T) {
	o := Options{MaxOvershoot: 0.1, LeaseShare: 0.25, TTL: time.Second}
	assert.Equal(t, Terms{Limit: quota.PerSecond(5, 30), Budget: 3, Share: 7, TTL: time.Second}, o.Terms(quota.PerSecond(5, 30)))
}

func TestWindowIsShorterThanTau(t *testing.T) {
	assert.Equal(t, 9949*time.Millisecond, (&Options{TTL: 10 * time.Second}).window())
	assert.Equal(t, 9929*time.Millisecond, (&Options{TTL: 10 * time.Second, Coarse: 10 * time.Millisecond}).window())
	for _, o := range []Options{
		{TTL: 10 * time.Millisecond}, {TTL: 10 * time.Millisecond, Coarse: time.Millisecond}, {TTL: time.Hour, Coarse: 6 * time.Minute},
	} {
		w := o.window()
		assert.Positive(t, w)
		assert.LessOrEqual(t, float64(w)*1.005+float64(2*o.Coarse), float64(o.TTL), "%+v", o)
	}
}

func TestPauseGrowsToAQuarterOfASecond(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		1: 50 * time.Millisecond, 2: 100 * time.Millisecond, 3: 200 * time.Millisecond, 4: 250 * time.Millisecond,
		100: 250 * time.Millisecond, math.MaxInt: 250 * time.Millisecond,
	} {
		assert.Equal(t, want, pause(failures), "%d failures", failures)
	}
}

func TestJitterStaysInItsBounds(t *testing.T) {
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	for range 10_000 {
		d := jitter(time.Second, 0.5, 1.5)
		least, most = min(least, d), max(most, d)
	}
	assert.GreaterOrEqual(t, least, 500*time.Millisecond)
	assert.Less(t, least, 600*time.Millisecond)
	assert.LessOrEqual(t, most, 1500*time.Millisecond)
	assert.Greater(t, most, 1400*time.Millisecond)
}

func TestPeakFollowsTheHighEnd(t *testing.T) {
	var p peak
	p.observe(1000)
	assert.Equal(t, int64(1000), p.get())
	p.observe(10)
	assert.Equal(t, int64(990), p.get())
	for range 1000 {
		p.observe(10)
	}
	assert.Less(t, p.get(), int64(120))
	p.observe(5000)
	assert.Equal(t, int64(5000), p.get())
}

func TestOwed(t *testing.T) {
	type owe struct{ epoch, n int64 }
	for name, tt := range map[string]struct {
		in   []owe
		want []Report
	}{
		"nothing":                   {[]owe{{1, 0}, {1, -3}}, nil},
		"one epoch sums":            {[]owe{{5, 1}, {5, 2}}, []Report{{5, 3}}},
		"two epochs":                {[]owe{{5, 1}, {9, 2}, {5, 3}}, []Report{{5, 4}, {9, 2}}},
		"the third drops the first": {[]owe{{5, 1}, {9, 2}, {13, 3}}, []Report{{9, 2}, {13, 3}}},
		"an old one is dropped":     {[]owe{{9, 2}, {13, 3}, {5, 1}}, []Report{{9, 2}, {13, 3}}},
		"the other way round":       {[]owe{{13, 3}, {9, 2}, {17, 1}}, []Report{{13, 3}, {17, 1}}},
		"epoch 0 is one":            {[]owe{{0, 2}, {0, 1}, {4, 1}}, []Report{{0, 3}, {4, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewPool(nil, Options{TTL: time.Second}).NewHolder("a", quota.Limit{Capacity: 1})
			for _, o := range tt.in {
				h.oweLocked(o.epoch, o.n)
			}
			var got []Report
			for _, r := range h.lends().owed {
				if r.Tokens > 0 {
					got = append(got, r)
				}
			}
			assert.ElementsMatch(t, tt.want, got)
		})
	}
}

func TestJumped(t *testing.T) {
	var c clock
	c.startClock(0)
	wall := int64(0)
	c.wall = func() int64 { return c.exact() + wall }
	step := func(move time.Duration, want bool) {
		t.Helper()
		wall += int64(move)
		assert.Equal(t, want, c.jumped(), "after %v", move)
		assert.False(t, c.jumped(), "told once")
	}
	step(0, false)
	step(900*time.Millisecond, false)
	step(500*time.Millisecond, true) // 1.4 s in all
	step(-time.Hour, false)
	step(900*time.Millisecond, false)
	step(time.Minute, true)
}
