package leaselimit_test

import (
	"testing"

	"github.com/leaselimit/leaselimit"
	"github.com/stretchr/testify/assert"
)

// A dear call that is refused does not keep a cheap one out that the bucket has tokens for, not even for the 5 ms between draws.
func TestACheapCallAfterADearOneIsJudgedByTheLevel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lim := newLimiter(t, newTap(), limited(still(100)))
		assert.True(t, call(t, lim, "acme", 30).Allowed)
		assert.False(t, call(t, lim, "acme", 80).Allowed)
		d := call(t, lim, "acme", 50)
		assert.True(t, d.Allowed, "%v", d)
		assert.Equal(t, leaselimit.SourceStore, d.Source)
		assert.Equal(t, int64(20), d.Remaining)
	})
}
