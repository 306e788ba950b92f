package membucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/lease/storetest"
	"github.com/leaselimit/leaselimit/membucket"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Fixture)) {
		synctest.Test(t, func(t *testing.T) {
			test(t, storetest.Fixture{Store: membucket.New(), Advance: time.Sleep})
		})
	})
}
