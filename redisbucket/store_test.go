package redisbucket_test

import (
	"testing"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease/storetest"
	"github.com/redis/go-redis/v9"
)

func TestStoreOnOneServer(t *testing.T) {
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Fixture)) {
		s, clock, _ := single(t)
		test(t, storetest.Fixture{Store: s, Advance: clock.Advance})
	})
}

func TestStoreOnCluster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	conform(t, func(t *testing.T) redis.UniversalClient { return c.Client(t) })
}

func TestStoreOnSentinel(t *testing.T) {
	g := redistest.StartSentinel(t)
	conform(t, func(t *testing.T) redis.UniversalClient { return g.Client(t) })
}

func TestStoreOnRing(t *testing.T) {
	addrs := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		addrs[name] = redistest.Start(t).Addr()
	}
	conform(t, func(t *testing.T) redis.UniversalClient {
		r := redis.NewRing(&redis.RingOptions{Addrs: addrs})
		t.Cleanup(func() { _ = r.Close() })
		return r
	})
}

// conform runs the suite on servers of the test's own.
func conform(t *testing.T, client func(t *testing.T) redis.UniversalClient) {
	t.Helper()
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Fixture)) {
		s, clock := faked(t, client(t), t.Name())
		test(t, storetest.Fixture{Store: s, Advance: clock.Advance})
	})
}
