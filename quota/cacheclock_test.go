package quota

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.init(time.Minute)
		rest := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		for range 3 {
			for range 1000 { // read now and then, it is a tick late at most
				late := c.now() - c.coarse()
				assert.LessOrEqual(t, late, int64(c.every))
				assert.GreaterOrEqual(t, late, int64(-1), "the lowest bit")
				rest(c.every / 3)
			}
			rest(2 * c.every)
			assert.Zero(t, c.copied.Load(), "not read, it stops")
			rest(time.Hour)
		}
		assert.Equal(t, c.now()|1, c.coarse(), "and starts when it is read")
		c.stop()
		rest(time.Hour)
		assert.EqualValues(t, stopped, c.coarse())
		var unused clock
		unused.init(time.Minute)
		unused.stop()
	})
}

// What is linked, unlinked and evicted in one bucket is found or not as it should be.
func TestTableOfOneBucket(t *testing.T) {
	tb := newTable(1)
	tb.most = 3
	names := []string{"a", "b", "c", "d"}
	has := func(want ...string) {
		t.Helper()
		for _, name := range names {
			e := tb.find(name)
			if assert.Equal(t, slices.Contains(want, name), e != nil, name); e != nil {
				assert.Same(t, e, tb.ring[e.slot])
			}
		}
		assert.Len(t, tb.ring, len(want))
	}
	put := func(name string) (old, evicted *entry) { return tb.put(&entry{tenant: name}) }
	for _, name := range names[:3] {
		old, evicted := put(name)
		assert.Nil(t, old)
		assert.Nil(t, evicted)
	}
	has("a", "b", "c")
	tb.find("a").touch()
	tb.find("b").touch()
	b := tb.find("b")
	old, evicted := put("b")
	assert.Same(t, b, old)
	assert.Nil(t, evicted)
	has("a", "b", "c")
	assert.True(t, tb.find("b").used.Load(), "who is in use stays so when refreshed")
	_, evicted = put("d")
	assert.Equal(t, "c", evicted.tenant)
	has("a", "b", "d")
}
