package load

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCallsComeOnSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var calls atomic.Int64
		r := Schedule{Rate: 1000, Calls: 5000, Callers: 7}.Run(func(i int) {
			calls.Add(1)
			assert.Equal(t, time.Duration(i)*time.Millisecond, time.Since(start))
		})
		assert.Equal(t, int64(5000), calls.Load())
		assert.Equal(t, int64(5000), r.Latency.TotalCount())
		assert.Equal(t, 4999*time.Millisecond, r.Elapsed)
		assert.LessOrEqual(t, r.Late.Max(), int64(1))
	})
}

// One call takes a second. A closed loop would see one slow call in 2000, and here half of them are late.
func TestCallsBehindASlowOneAreMeasuredFromWhenTheyWereDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Schedule{Rate: 1000, Calls: 2000, Callers: 1}.Run(func(i int) {
			if i == 0 {
				time.Sleep(time.Second)
			}
		})
		assert.InEpsilon(t, float64(500*time.Millisecond), float64(r.Latency.ValueAtQuantile(75)), 0.01)
		assert.InEpsilon(t, float64(time.Second), float64(r.Latency.Max()), 0.01)
	})
}

func TestCallersWaitSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Schedule{Rate: 1000, Calls: 1000, Callers: 10}.Run(func(int) { time.Sleep(10 * time.Millisecond) })
		assert.InEpsilon(t, float64(10*time.Millisecond), float64(r.Latency.Max()), 0.01)
	})
}

func TestLine(t *testing.T) {
	var l line
	for _, step := range []struct{ due, took, latency, begin time.Duration }{
		{due: 10, took: 3, latency: 3, begin: 10},
		{due: 20, took: 25, latency: 25, begin: 20}, // until 45
		{due: 30, took: 3, latency: 18, begin: 45},
		{due: 40, took: 3, latency: 11, begin: 48},
		{due: 60, took: 3, latency: 3, begin: 60}, // however late the machine woke the caller
	} {
		latency, begin := l.pass(step.due, step.took)
		assert.Equal(t, step.latency, latency)
		assert.Equal(t, step.begin, begin)
	}
}
