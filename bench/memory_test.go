package bench

import (
	"testing"

	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/stretchr/testify/assert"
)

// Decisions from memory: what callers pay when nobody has to be asked. Beside them limiters of one process, which are here as
// the floor, not as equals.
var inMemory = []peer.Peer{
	peer.ByName, peer.ByHandle, peer.CoarseName, peer.CoarseHandle, peer.XTimeMap, peer.Uber, peer.GoLimiter,
}

func BenchmarkMemoryAllow(b *testing.B) { memory(b, true) }

func BenchmarkMemoryRefuse(b *testing.B) { memory(b, false) }

func memory(b *testing.B, allow bool) {
	compare(b, peer.Work{Allow: allow}, []int{1}, []int{1, 2}, peer.XTime)
	compare(b, peer.Work{Allow: allow}, []int{1, many}, []int{1, 2}, inMemory...)
}

// What is decided from memory allocates nothing: no garbage, no pauses, whatever the load.
func TestDecisionsFromMemoryDoNotAllocate(t *testing.T) {
	for _, p := range []peer.Peer{peer.ByName, peer.ByHandle, peer.CoarseName, peer.CoarseHandle} {
		for _, allow := range []bool{true, false} {
			lim := prepare(t, p, peer.Work{Tenants: 1, Allow: allow})
			assert.Zero(t, testing.AllocsPerRun(1000, func() {
				if allowed, err := lim.Decide(0); err != nil || allowed != allow {
					t.Errorf("%s decided %t, %v", p.Name, allowed, err)
				}
			}), p.Name)
		}
	}
}
