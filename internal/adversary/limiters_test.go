package adversary_test

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/leaselimit/leaselimit/internal/adversary"
	"github.com/leaselimit/leaselimit/membucket"
)

// TestBoundHoldsForLimiters is the same claim for the real lease code, calls and all.
func TestBoundHoldsForLimiters(t *testing.T) {
	t.Parallel()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	n := max(1, *episodes/50)
	var s tally
	for seed := *first; seed < *first+n; seed++ {
		synctest.Test(t, func(*testing.T) {
			s.add(adversary.Limiters(seed, membucket.New()))
		})
	}
	t.Logf("seeds %d to %d: %+v", *first, *first+n-1, s)
	assert.Zero(t, s.violated, s.worst)
	assert.Positive(t, s.reached, "the adversary is weak")
}
