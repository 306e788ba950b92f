package ratio

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func sleeping(d time.Duration) Work {
	return func(_, n int) { time.Sleep(time.Duration(n) * d) }
}

func TestRatioOfWhatTakesThreeTimesAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Meter{Rounds: 5, Turn: time.Second, Callers: 2}
		assert.InDelta(t, 3, m.Of(sleeping(3*time.Microsecond), sleeping(time.Microsecond)), 1e-9)
	})
}

// A pause of the machine that hits fewer than half of the rounds does not matter.
func TestPausesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		paused := func(_, n int) {
			time.Sleep(time.Duration(n) * time.Microsecond)
			if calls.Add(1)%3 == 0 {
				time.Sleep(time.Minute)
			}
		}
		m := Meter{Rounds: 21, Turn: time.Millisecond, Callers: 1}
		assert.InDelta(t, 1, m.Of(paused, sleeping(time.Microsecond)), 0.01)
	})
}

func TestEveryCallerMakesAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var byCaller [3]atomic.Int64
		w := func(caller, n int) {
			byCaller[caller].Add(int64(n))
			time.Sleep(time.Duration(n))
		}
		Meter{Rounds: 1, Turn: time.Microsecond, Callers: 3}.Of(w, w)
		assert.Positive(t, byCaller[0].Load())
		assert.Equal(t, byCaller[0].Load(), byCaller[1].Load())
		assert.Equal(t, byCaller[0].Load(), byCaller[2].Load())
	})
}

func TestMedian(t *testing.T) {
	assert.InDelta(t, 2, Median([]float64{9, 1, 2}), 0)
	assert.InDelta(t, 2.5, Median([]float64{3, 9, 1, 2}), 0)
}

func TestALossOfMoreThanAQuarterFails(t *testing.T) {
	r := Record{Ratio: 0.4, Target: 0.45}
	assert.Equal(t, "ok", r.Verdict(0.2))
	assert.Equal(t, "ok", r.Verdict(0.45))
	assert.Equal(t, "ok, above target", r.Verdict(0.49))
	assert.False(t, r.Lost(0.49))
	assert.Equal(t, "LOST", r.Verdict(0.51))
	assert.Equal(t, "new", Record{Target: 0.45}.Verdict(9))
}
