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

// Each pair has a target, and no target is left of a pair that is gone.
func TestCommittedRatiosAreThoseOfThePairs(t *testing.T) {
	f, err := ratio.Load("../ratios.json")
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
		require.NoError(t, ratio.File{Pairs: map[string]ratio.Record{pair: {Ratio: r, Target: 1}}}.Save(name))
	}
	write(1e9)
	require.NoError(t, run(name, pair, false, m))
	write(1e-9)
	require.ErrorContains(t, run(name, pair, false, m), pair)
	require.NoError(t, run(name, pair, true, m))
	f, err := ratio.Load(name)
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
