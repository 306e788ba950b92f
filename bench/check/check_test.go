package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/bench/ratio"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALossOfMoreThanAQuarterFails(t *testing.T) {
	r := record{Ratio: 0.4, Target: 0.45}
	assert.Equal(t, "ok", r.verdict(0.2))
	assert.Equal(t, "ok", r.verdict(0.45))
	assert.Equal(t, "ok, above target", r.verdict(0.49))
	assert.False(t, r.lost(0.49))
	assert.Equal(t, "LOST", r.verdict(0.51))
	assert.Equal(t, "new", record{Target: 0.45}.verdict(9))
}

// Each pair has a target, and no target is left of a pair that is gone.
func TestCommittedRatiosAreThoseOfThePairs(t *testing.T) {
	f, err := load("../ratios.json")
	require.NoError(t, err)
	assert.Len(t, f.Pairs, len(pairs))
	for _, p := range pairs {
		assert.Contains(t, f.Pairs, p.name)
	}
}

// Times say nothing here: the committed ratio is out of reach either way.
func TestCheckAndUpdate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "ratios.json")
	m := ratio.Meter{Rounds: 1, Turn: time.Microsecond}
	const pair = "refuse/handle/2-callers"
	write := func(r float64) {
		require.NoError(t, file{Pairs: map[string]record{pair: {Ratio: r, Target: 1}}}.save(name))
	}
	write(1e9)
	require.NoError(t, run(name, pair, false, m))
	write(1e-9)
	require.ErrorContains(t, run(name, pair, false, m), pair)
	require.NoError(t, run(name, pair, true, m))
	f, err := load(name)
	require.NoError(t, err)
	assert.Greater(t, f.Pairs[pair].Ratio, 1e-9)
	assert.InDelta(t, 1, f.Pairs[pair].Target, 0)
	assert.NotEmpty(t, f.Machine)

	require.NoError(t, os.WriteFile(name, []byte("{"), 0o600))
	require.ErrorContains(t, run(name, pair, false, m), name)
}

// A limiter that refuses what it must allow is no comparison.
func TestAWrongDecisionFails(t *testing.T) {
	flips := peer.Peer{Name: "flips", New: func(peer.Work) (*peer.Limiter, error) {
		calls := 0
		return &peer.Limiter{
			Decide: func(int) (bool, error) { calls++; return calls < 10, nil },
			Close:  func() error { return nil },
		}, nil
	}}
	p := pair{"flips", flips, peer.XTime, 1, true, 1}
	_, err := p.measure(ratio.Meter{Rounds: 1, Turn: time.Microsecond})
	require.ErrorIs(t, err, peer.ErrWrong)
}
