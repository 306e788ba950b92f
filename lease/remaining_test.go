package lease_test

import (
	"sync"
	"testing"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What remains is written before the token is taken. Callers that come between must not be told the same.
func TestCallersAtOnceAreToldApartWhatRemains(t *testing.T) {
	const tokens = 800_000 // of which fewer than half are spent: no top-up
	o := options()
	o.LeaseShare, o.LeaseSize, o.MaxHold = 1, tokens, tokens
	r := newRig(t, quota.Limit{Capacity: 2 * tokens}, o)
	_, err := r.Spend(t.Context(), r.limit, 1)
	require.NoError(t, err)
	held := r.Held()
	require.Equal(t, int64(tokens), held)

	var mu sync.Mutex
	told := make(map[int64]int)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			var mine []int64
			for range tokens / 16 {
				res, ok := r.fromMemory(&r.limit, int64(1+i%2))
				if !ok || res.Verdict != lease.FromLease {
					t.Error("the lease covers all")
					return
				}
				mine = append(mine, res.Remaining)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, n := range mine {
				told[n]++
			}
		})
	}
	wg.Wait()
	answers := len(told)
	assert.Equal(t, tokens/4, answers, "as many as calls")
	assert.Equal(t, held-3*tokens/8, r.Held(), "two spent one token, two spent two")
}
