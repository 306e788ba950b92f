package peer

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStrideVisitsEveryTenant(t *testing.T) {
	for _, n := range []int{1, 2, 7, 10_000, 7920} {
		w := Work{Tenants: n}
		seen, i := map[int]bool{}, 0
		for range n {
			seen[i] = true
			i = (i + w.Stride()) % n
		}
		assert.Len(t, seen, n)
	}
}

func TestPrepareFindsALimiterThatNeverRefuses(t *testing.T) {
	_, err := Uber.Prepare(Work{Tenants: 1})
	require.ErrorIs(t, err, ErrWrong)
}

// The script is the one that is tested to share buckets with ours; it cannot be embedded from there.
func TestScriptIsThePlainOne(t *testing.T) {
	plain, err := os.ReadFile("../../scripts/testdata/plain.lua")
	require.NoError(t, err)
	assert.Equal(t, string(plain), source)
}
