package localbucket_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leaselimit/leaselimit/localbucket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCloseIsExact spends, undoes and closes a lease from many goroutines: every token is either spent or given back.
func TestCloseIsExact(t *testing.T) {
	for round := range 300 {
		const tokens = 500
		g := localbucket.Grant{Tokens: tokens, Ready: tokens, Deadline: 10}
		if round%2 == 1 { // a future-dated lease spends by another path
			g.Ready, g.Next, g.From = tokens/2, tokens/4, 1
			g.Spacing = 1
		}
		l := localbucket.NewLease(g)
		var net atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for now := range int64(200) {
					switch now %= 9; i % 4 {
					case 0, 1:
						if _, ok := l.Take(now, 1); ok {
							net.Add(1)
						}
					case 2:
						if _, ok := l.Take(now, 3); ok {
							net.Add(3)
							if l.Undo(2) {
								net.Add(-2)
							}
						}
					case 3:
						net.Add(l.TakeUpTo(now, 2))
					}
				}
			})
		}
		var unspent, spent int64
		wg.Go(func() {
			for range round % 50 * 20 {
				_ = l.Left()
			}
			unspent, spent = l.Close()
		})
		wg.Wait()
		require.Equal(t, int64(tokens), unspent+spent)
		require.Equal(t, spent, net.Load(), "round %d: %d unspent", round, unspent)
		require.Zero(t, l.Left())
	}
}

// TestExactlyWhatIsThereIsSpent lets more callers than tokens meet the exhaustion, and puts back some of it.
func TestExactlyWhatIsThereIsSpent(t *testing.T) {
	for range 300 {
		l := localbucket.NewLease(localbucket.Grant{Tokens: 20, Ready: 20, Deadline: 10})
		var ok, undone atomic.Int64
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for range 5 {
					if _, took := l.Take(0, 1); !took {
						continue
					}
					ok.Add(1)
					if i%4 == 0 && l.Undo(1) {
						undone.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, int64(20), ok.Load()-undone.Load()+l.Left())
		for l.Left() > 0 {
			_, took := l.Take(0, 1)
			require.True(t, took)
			ok.Add(1)
		}
		require.Equal(t, int64(20), ok.Load()-undone.Load())
	}
}

// TestADearCallDoesNotRefuseACheapOne holds a fault of counters that add first and undo after: between the two a call that
// the lease covers is refused.
func TestADearCallDoesNotRefuseACheapOne(t *testing.T) {
	l := localbucket.NewLease(localbucket.Grant{Tokens: 10, Ready: 10, Deadline: 10})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				_, ok := l.Take(0, 11)
				assert.False(t, ok)
			}
		})
	}
	for range 200_000 {
		_, ok := l.Take(0, 1)
		if !assert.True(t, ok) {
			break
		}
		l.Undo(1)
	}
	stop.Store(true)
	wg.Wait()
	assert.Equal(t, int64(10), l.Left())
}

// TestLowFiresOncePerArming counts how many callers are told.
func TestLowFiresOncePerArming(t *testing.T) {
	for range 300 {
		l := localbucket.NewLease(localbucket.Grant{Tokens: 200, Ready: 200, Deadline: 10})
		l.SetLow(150)
		var told atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					left, ok := l.Take(0, 1)
					if !ok {
						return
					}
					if l.Low(left) {
						told.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, int64(1), told.Load())
	}
}
