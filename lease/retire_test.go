package lease

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

// What calls count of a holder that was retired meanwhile goes to the pool, once, though it be the first that is counted of it.
func TestWhatIsCountedLateIsThePools(t *testing.T) {
	for name, before := range map[string]int64{"after others": 3, "as the first": 0} {
		t.Run(name, func(t *testing.T) {
			p := NewPool(nil, Options{TTL: time.Second})
			h := p.NewHolder("a", quota.Limit{Capacity: 100})
			for range before {
				h.refuse(1, RefusedLocal)
			}
			_, _, refused := h.Retire()
			assert.Equal(t, before, refused)

			h.addExtra(2)
			h.refuse(1, RefusedLocal)
			h.Refused(1)
			assert.Equal(t, int64(2), p.count.LateExtra.Load())
			assert.Equal(t, int64(2), p.count.LateRefused.Load())
			tokens, calls, refused := h.Spent()
			assert.Equal(t, [3]int64{0, 0, before}, [3]int64{tokens, calls, refused}, "its own stay as they were")
			h.Retire()
			assert.Equal(t, int64(2), p.count.LateRefused.Load())
		})
	}
}
