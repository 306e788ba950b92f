package adversary_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/internal/adversary"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	episodes = flag.Uint64("episodes", 100_000, "episodes against the store; a quarter with -short")
	first    = flag.Uint64("seed", 1, "seed of the first episode")
)

// tally counts the violations of episodes, and those that reached nine tenths of a budget that can be reached.
type tally struct {
	violated, reached, reachable int
	closest                      float64 // to the bound, from below; above 0 is beyond
	worst                        string
}

func (s *tally) add(o adversary.Outcome) {
	if over := o.Overshoot - float64(o.Budget); s.worst == "" || over > s.closest {
		s.closest, s.worst = over, o.Setting
	}
	if o.Violated() {
		s.violated++
	}
	if o.Reachable {
		s.reachable++
		if o.Overshoot >= 0.9*float64(o.Budget) {
			s.reached++
		}
	}
}

// count is how many episodes are played against the store.
func count() uint64 {
	if testing.Short() {
		return *episodes / 4
	}
	return *episodes
}

// play plays n episodes against one store.
func play(t *testing.T, from, n uint64, store func() lease.Store, rules adversary.Rules) (s tally) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := store()
		for seed := from; seed < from+n; seed++ {
			o, err := adversary.Run(seed, st, time.Sleep, rules)
			require.NoError(t, err, o.Setting)
			s.add(o)
		}
	})
	return s
}

// TestBoundHolds is the claim of the library: no attack gets above the budget, and the attacks are good enough to reach it.
func TestBoundHolds(t *testing.T) {
	t.Parallel()
	const parts = 4
	for part := range uint64(parts) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			n := count() / parts
			s := play(t, *first+part*n, n, func() lease.Store { return membucket.New() }, adversary.Rules{})
			t.Logf("seeds %d to %d: %+v", *first+part*n, *first+(part+1)*n-1, s)
			assert.Zero(t, s.violated, s.worst)
			assert.Greater(t, s.reached, s.reachable/30, "the adversary is weak")
		})
	}
}

// TestEpisodesAreTheirSeeds: a seed that broke the bound can be played again.
func TestEpisodesAreTheirSeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := *first; seed < *first+2000; seed++ {
			one, err := adversary.Run(seed, membucket.New(), time.Sleep, adversary.Rules{})
			require.NoError(t, err)
			again, err := adversary.Run(seed, membucket.New(), time.Sleep, adversary.Rules{})
			require.NoError(t, err)
			assert.Equal(t, one, again)
		}
	})
}

// TestOracle shows that the oracle sees each rule: with it switched off in a copy, the bound breaks.
func TestOracle(t *testing.T) {
	if testing.Short() {
		return // it has nothing to do with races, and needs all of its episodes
	}
	t.Parallel()
	const n = 20_000
	t.Run("all rules", func(t *testing.T) {
		t.Parallel()
		s := play(t, 1, n, func() lease.Store { return newCopied("") }, adversary.Rules{})
		assert.Zero(t, s.violated, s.worst)
	})
	for _, off := range []string{
		"R1: refill before reports", "R2: piecewise across borders", "R3: epochs are named",
		"surplus is counted", "refill cap", "the past is priced at its own terms", "a cut of the budget takes tokens",
		"late waiters' tokens are credited less the refill", "the longest trust window counts",
	} {
		t.Run("without "+off, func(t *testing.T) {
			t.Parallel()
			s := play(t, 1, n, func() lease.Store { return newCopied(off) }, adversary.Rules{})
			t.Logf("%+v", s)
			assert.Positive(t, s.violated)
		})
	}
	for name, rules := range map[string]adversary.Rules{
		"R4: reports are sent once":         {ReportTwice: true},
		"R4: returns are sent once":         {ReturnTwice: true},
		"waiters' tokens go back":           {KeepWaiters: true},
		"leases end":                        {SpendExpired: true},
		"the window counts from the asking": {WindowOnReply: true},
	} {
		t.Run("without "+name, func(t *testing.T) {
			t.Parallel()
			s := play(t, 1, n, func() lease.Store { return membucket.New() }, rules)
			t.Logf("%+v", s)
			assert.Positive(t, s.violated)
		})
	}
}
