package storetest

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var returnTests = []test{
	{"UnspentSurplusIsCreditedOnce", func(t *testing.T, b *bench) {
		lim := terms(10, 0, 0, 10)
		g := b.borrow(lim, 6)
		item := lease.Return{Key: bucket, Terms: lim, Epoch: g.Epoch, Unspent: 4, Spent: 2}
		b.giveBack(item)
		b.holds(lim, 8, 0)
		b.giveBack(item)
		b.holds(lim, 8, 0)
	}},

	{"AReturnOfTheLastEpochIsCredited", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		g := b.borrow(lim, 6)
		b.Advance(15 * time.Second)
		b.borrow(lim, 1)
		b.holds(lim, 3, 7)
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Epoch: g.Epoch, Unspent: 2, Spent: 3})
		b.holds(lim, 5, 2)
	}},

	{"ALateReturnIsNotCredited", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		g := b.borrow(lim, 6)
		b.draw(lim, 4)
		b.Advance(21 * time.Second) // 4 s of refill under the cap, then it ages out, then 1 s
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Epoch: g.Epoch, Unspent: 6})
		b.holds(lim, 5, 0)
	}},

	{"WaitersTokensAreCreditedUpToTheCap", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 2, 10)
		g := b.draw(lim, 8)
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Waiters: 5, At: g.At})
		b.holds(lim, 7, 0)
		b.borrow(lim, 6)
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Waiters: 99, At: g.At})
		b.holds(lim, 6, 6) // 10 + 2 - 6
		b.giveBack(lease.Return{Key: bucket, Terms: lim})
		b.holds(lim, 6, 6)
	}},

	{"LateWaitersTokensAreCreditedLessTheRefill", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		g := b.draw(lim, 10)
		b.Advance(4 * time.Second)
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Waiters: 3, At: g.At}) // 4 have been refilled in their place
		b.holds(lim, 4, 0)
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Waiters: 6, At: g.At})
		b.holds(lim, 6, 0)
	}},

	{"LateWaitersTokensAreCreditedInFullWithoutRefill", func(t *testing.T, b *bench) {
		lim := terms(10, 0, 0, 10)
		g := b.draw(lim, 10)
		b.Advance(4 * time.Second)
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Waiters: 3, At: g.At})
		b.holds(lim, 3, 0)
	}},

	{"ABucketThatIsNotThereStaysSo", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Waiters: 5, Epoch: 1, Unspent: 5})
		assert.Equal(t, lease.State{Level: 10}, b.peek(lim))
	}},

	{"ManyGoInOneCall", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		const n = 1200
		items := make([]lease.Return, n)
		for i := range items {
			key := lease.Key{Tenant: tenant(i), Class: "default"}
			g := b.acquire(lease.AcquireRequest{Key: key, Terms: lim, Want: 5, Replicas: 1})
			require.Equal(t, int64(5), g.Surplus)
			items[i] = lease.Return{Key: key, Terms: lim, Epoch: g.Epoch, Unspent: 5}
		}
		b.giveBack(items...)
		for _, item := range items {
			st, err := b.Store.Peek(t.Context(), item.Key, lim)
			require.NoError(t, err)
			require.InDelta(t, 10, st.Level, near)
			require.Zero(t, st.Out)
		}
		b.giveBack()
	}},

	{"AnInvalidReturnDoesNotStopTheOthers", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		g := b.borrow(lim, 5)
		err := b.Store.Return(t.Context(), []lease.Return{
			{Key: lease.Key{Class: "default"}, Terms: lim, Waiters: 1},
			{Key: bucket, Terms: lim, Epoch: g.Epoch, Unspent: 5},
			{Key: bucket, Terms: lim, Waiters: -1},
		})
		require.Error(t, err)
		assert.Equal(t, lease.ReasonOther, lease.ReasonOf(err))
		b.holds(lim, 10, 0)
	}},
}
