package main

import (
	"fmt"
	"sync/atomic"

	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/bench/ratio"
)

// A pair is one of ours beside one of theirs, doing the same.
type pair struct {
	name         string
	ours, theirs peer.Peer
	tenants      int
	allow        bool
	callers      int
}

const many = 10_000

// pairs are the hot paths. Each has its committed ratio and its target under its name.
var pairs = []pair{
	{"allow/handle", peer.ByHandle, peer.XTime, 1, true, 1},
	{"allow/name", peer.ByName, peer.XTimeMap, 1, true, 1},
	{"allow/name/10000-tenants", peer.ByName, peer.XTimeMap, many, true, 1},
	{"allow/handle/2-callers", peer.ByHandle, peer.XTime, 1, true, 2},
	{"allow/name/2-callers", peer.ByName, peer.XTimeMap, 1, true, 2},
	{"refuse/handle", peer.ByHandle, peer.XTime, 1, false, 1},
	{"refuse/name", peer.ByName, peer.XTimeMap, 1, false, 1},
	{"refuse/name/10000-tenants", peer.ByName, peer.XTimeMap, many, false, 1},
	{"refuse/handle/2-callers", peer.ByHandle, peer.XTime, 1, false, 2},
	{"coarse/allow/handle", peer.CoarseHandle, peer.XTime, 1, true, 1},
	{"coarse/allow/name", peer.CoarseName, peer.XTimeMap, 1, true, 1},
	{"coarse/allow/name/10000-tenants", peer.CoarseName, peer.XTimeMap, many, true, 1},
	{"coarse/refuse/handle", peer.CoarseHandle, peer.XTime, 1, false, 1},
}

// measure is the median ratio of the pair.
func (p pair) measure(m ratio.Meter) (float64, error) {
	work := peer.Work{Tenants: p.tenants, Allow: p.allow}
	ours, err := p.ours.Prepare(work)
	if err != nil {
		return 0, err
	}
	defer func() { _ = ours.Close() }()
	theirs, err := p.theirs.Prepare(work)
	if err != nil {
		return 0, err
	}
	defer func() { _ = theirs.Close() }()
	m.Callers = p.callers
	if p.tenants > 1 { // each turn begins with the caches full of the other's tenants: let it be a small part of the turn
		m.Turn, m.Rounds = 10*m.Turn, m.Rounds/4|1
	}
	var wrong atomic.Int64
	r := m.Of(calls(ours, work, p.callers, &wrong), calls(theirs, work, p.callers, &wrong))
	if wrong.Load() > 0 {
		return 0, fmt.Errorf("%s: %w, %d times", p.name, peer.ErrWrong, wrong.Load())
	}
	return r, nil
}

// calls visits the tenants in turn, each caller from another one on.
func calls(lim *peer.Limiter, w peer.Work, callers int, wrong *atomic.Int64) ratio.Work {
	stride := w.Stride()
	return func(caller, n int) {
		i := caller * w.Tenants / callers
		for range n {
			allowed, err := lim.Decide(i)
			if err != nil || allowed != w.Allow {
				wrong.Add(1)
			}
			if i += stride; i >= w.Tenants {
				i -= w.Tenants
			}
		}
	}
}
