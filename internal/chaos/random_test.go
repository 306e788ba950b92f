package chaos_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	chaosFor  = flag.Duration("chaos", 5*time.Second, "how long TestRandomFaults goes on")
	chaosSeed = flag.Uint64("chaos-seed", 1, "of the order of its faults")
)

// TestRandomFaults stages faults in a random order on one world, whose replicas live through all of them.
func TestRandomFaults(t *testing.T) {
	rng := rand.New(rand.NewPCG(*chaosSeed, 0))
	g := newGround(t)
	g.begin(t, fmt.Sprint("random-", *chaosSeed), hasty)
	losses, n := int64(0), 0
	for begin := time.Now(); time.Since(begin) < *chaosFor; n++ {
		f := faults[rng.IntN(len(faults))]
		if f.once {
			continue
		}
		t.Logf("%v: %s", time.Since(begin).Round(time.Millisecond), f.name)
		f.do(t, g)
		losses += f.losses
		g.w.recovered(t)
		during(time.Duration(rng.Int64N(int64(spell))))
	}
	t.Logf("%d faults with seed %d", n, *chaosSeed)
	g.w.check(t, losses, false)
}
