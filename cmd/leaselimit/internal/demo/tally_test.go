package demo

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

func TestTally(t *testing.T) {
	y := newTally(quota.PerSecond(10, 5))
	step := func(at time.Duration, n int, allowed bool, over, under int64) {
		t.Helper()
		for range n {
			y.note(at, allowed)
		}
		o, u := y.read()
		assert.Equal(t, over, o, "overshoot")
		assert.Equal(t, under, u, "undershoot")
	}
	step(0, 5, true, 0, 0)
	step(0, 3, true, 3, 0)              // three above the capacity
	step(time.Second, 5, false, 3, 2)   // of five that the ideal bucket admits in its place, three make up for those
	step(time.Second/2, 1, false, 3, 2) // an answer out of order counts as the last one
	step(2*time.Second, 9, true, 4, 0)  // nine at once, where five fit: one more than the worst so far
	step(time.Minute, 100, false, 4, 3) // and what is refused beyond the ideal bucket is no undershoot
}
