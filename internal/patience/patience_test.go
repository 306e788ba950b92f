package patience

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Patience{Attempts: 4, Wait: 10 * time.Second}
		wait, ok := p.Take(t.Context(), 4*time.Second)
		require.True(t, ok)
		require.GreaterOrEqual(t, wait, 4400*time.Millisecond)
		require.LessOrEqual(t, wait, 5*time.Second)
		require.Equal(t, Patience{Attempts: 3, Wait: 10*time.Second - wait}, p)

		left := p
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		for _, refused := range []func() (time.Duration, bool){
			func() (time.Duration, bool) { return p.Take(t.Context(), 6*time.Second) },
			func() (time.Duration, bool) { return p.Take(t.Context(), math.MaxInt64) },
			func() (time.Duration, bool) { return p.Take(ctx, 4*time.Second) },
		} {
			_, ok = refused()
			require.False(t, ok)
			require.Equal(t, left, p, "nothing is taken")
		}
		for range 2 {
			_, ok = p.Take(ctx, time.Second)
			require.True(t, ok)
		}
		_, ok = p.Take(ctx, 1)
		require.False(t, ok, "the fourth attempt is the last")
	})
}

func TestPastDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, PastDeadline(t.Context(), math.MaxInt64))
		require.False(t, PastDeadline(ctx, time.Second-1))
		require.True(t, PastDeadline(ctx, time.Second), "there would be no time left for the call")
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.True(t, Sleep(ctx, time.Second/2))
		require.Equal(t, time.Second/2, time.Since(start))
		require.False(t, Sleep(ctx, time.Hour))
		require.Equal(t, time.Second, time.Since(start))
		require.False(t, Sleep(ctx, 0))
	})
}

func TestJitter(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 99, time.Second, time.Hour, math.MaxInt64 / 2, math.MaxInt64} {
		for range 1000 {
			got := Jitter(d)
			require.GreaterOrEqual(t, got, d)
			require.LessOrEqual(t, got, MaxJitter(d))
			if d >= time.Second && d <= time.Hour {
				require.GreaterOrEqual(t, got, d*110/100)
			}
		}
	}
	require.Equal(t, 5*time.Second, MaxJitter(4*time.Second))
	require.Equal(t, time.Duration(math.MaxInt64), MaxJitter(math.MaxInt64))
}
