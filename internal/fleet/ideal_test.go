package fleet_test

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

func TestProved(t *testing.T) {
	t.Parallel()
	limit := quota.PerSecond(10, 5)
	at := func(start, end int, cost int64) fleet.Call {
		return fleet.Call{
			Start: time.Duration(start) * time.Millisecond, End: time.Duration(end) * time.Millisecond, Cost: cost, Allowed: true,
		}
	}
	for name, tt := range map[string]struct {
		calls []fleet.Call
		want  float64
	}{
		"one call":                         {[]fleet.Call{at(0, 0, 3)}, -2},
		"at one moment":                    {[]fleet.Call{at(7, 7, 3), at(7, 7, 4)}, 2},
		"the refill between them":          {[]fleet.Call{at(0, 0, 5), at(100, 100, 3)}, 2},
		"a lull before the burst":          {[]fleet.Call{at(0, 0, 1), at(9000, 9000, 7)}, 2},
		"in flight: only what is inside":   {[]fleet.Call{at(0, 0, 5), at(0, 300, 5)}, 2},
		"refused calls do not count":       {[]fleet.Call{at(0, 0, 5), {Cost: 100}}, 0},
		"in any order":                     {[]fleet.Call{at(100, 100, 3), at(0, 0, 5)}, 2},
		"one that began before the window": {[]fleet.Call{at(0, 1000, 1), at(1000, 1000, 7)}, 2},
	} {
		assert.InDelta(t, tt.want, fleet.Proved(tt.calls, limit), 1e-9, name)
	}
}
