package tty

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567", -1: "-1", -999: "-999", -1000: "-1,000",
		math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		require.Equal(t, want, Count(n))
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 12: "12", 0.5: "0.5", 1.0 / 3: "0.333", 2.9996: "3", -1.25: "-1.25", 1 << 53: "9007199254740992", -0.0001: "0",
	} {
		require.Equal(t, want, Number(v))
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 7: "7ns", 999: "999ns", 1234: "1.23µs", 123456: "123µs", 12345678: "12.3ms", 1500 * time.Millisecond: "1.5s",
		90 * time.Second: "1m30s", 720*time.Hour - time.Millisecond: "720h0m0s",
	} {
		require.Equal(t, want, Duration(d))
	}
	require.NotEmpty(t, Duration(math.MaxInt64))
}

func TestWrap(t *testing.T) {
	const text = "  one two  three\nfour \x1b[32mfive\x1b[0m\n"
	require.Equal(t, text, Wrap(text, 80))
	require.Equal(t, "one two\nthree\nfour\n\x1b[32mfive\x1b[0m\n", Wrap(text, 8))
	require.Equal(t, "one\ntwo\nthree\nfour\n\x1b[32mfive\x1b[0m\n", Wrap(text, 1))
}

func TestStylesAreForTerminalsAlone(t *testing.T) {
	require.Nil(t, Of(&bytes.Buffer{}))
	require.Equal(t, "x", StyleFor(nil).Bold("x"))
	require.Equal(t, "\x1b[1mx\x1b[0m", StyleFor(&Terminal{}).Bold("x"))
	t.Setenv("NO_COLOR", "1")
	require.Equal(t, "x", StyleFor(&Terminal{}).Bad("x"))
}
