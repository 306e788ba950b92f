package demo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
)

func example(replicas int) snapshot {
	s := snapshot{
		elapsed: 1500 * time.Millisecond, duration: 6 * time.Second,
		bound:  leaselimit.Bound{Tokens: 100, Limit: quota.PerSecond(1000, 1000)},
		bucket: &lease.State{Level: -3.5, Out: 200}, overshoot: 7, undershoot: 1200,
	}
	for i := range int64(replicas) {
		s.rows = append(s.rows, row{offered: 1_000_000 * (i + 1), admitted: 400, refused: 600, storeCalls: 12, held: 30})
	}
	return s
}

func TestFrame(t *testing.T) {
	got := frame(example(2), 80, 24, tty.Style{})
	require.Equal(t, []string{
		" replica    offered   admitted    refused  store calls     held",
		"       1  1,000,000        400        600           12       30",
		"       2  2,000,000        400        600           12       30",
		"     all  3,000,000        800      1,200           24       60",
		"shared bucket: 0 of 1,000 tokens, 200 leased out",
		"admitted 800 of at most 2,600 by now",
		"overshoot 7 of at most 100, undershoot 1,200",
		"25% ██████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 1.5s of 6s",
	}, got)
}

// Whatever the terminal, no line wraps and nothing scrolls: either would break the drawing in place.
func TestFrameFitsEveryTerminal(t *testing.T) {
	for _, replicas := range []int{1, 4, 256} {
		s := example(replicas)
		for width := 1; width <= 130; width += 3 {
			for _, height := range []int{1, 2, 3, 5, 8, 24, 300} {
				lines := frame(s, width, height, tty.Style{})
				require.NotEmpty(t, lines)
				require.LessOrEqual(t, len(lines), max(1, height-1), "%d replicas, %dx%d", replicas, width, height)
				for _, line := range lines {
					require.Less(t, utf8.RuneCountInString(line), max(2, width), "%d replicas, %dx%d", replicas, width, height)
				}
			}
		}
	}
}

func TestFrameOfMoreReplicasThanLines(t *testing.T) {
	got := frame(example(50), 80, 12, tty.Style{})
	require.Len(t, got, 11)
	require.Contains(t, got[len(got)-6], "46 more")
	require.Contains(t, strings.Join(got, "\n"), "1,275,000,000")
}

func TestFrameWithoutAnAnswerOfTheBucket(t *testing.T) {
	s := example(1)
	s.bucket = nil
	require.Contains(t, frame(s, 80, 24, tty.Style{}), "shared bucket: no answer")
}
