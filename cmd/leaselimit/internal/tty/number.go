package tty

import (
	"strconv"
	"time"
)

// Count writes n in groups of three digits: 1,234,567.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if s[0] == '-' {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Number writes a float of some tokens: whole if it is, else with at most three decimals.
func Number(v float64) string {
	return strconv.FormatFloat(round(v, 1000), 'f', -1, 64)
}

func round(v, steps float64) float64 {
	if v < 0 {
		return 0 - round(-v, steps) // and not the 0 that is written -0
	}
	if v >= 1<<53/steps {
		return v
	}
	return float64(int64(v*steps+0.5)) / steps
}

// Duration writes d with three digits, or in whole seconds where that says more.
func Duration(d time.Duration) string {
	step := time.Duration(1)
	for step < time.Second && d >= 1000*step {
		step *= 10
	}
	return d.Round(step).String()
}
