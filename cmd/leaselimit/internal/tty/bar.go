package tty

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
)

// Bar is a progress bar with a label behind it, at most width wide where the label is. Where there is no room for a bar it is the
// label.
func Bar(done, total int64, label string, width int) string {
	room := min(40, width-len("100%   ")-utf8.RuneCountInString(label))
	if room < 4 {
		return label
	}
	b := progressbar.NewOptions64(max(1, total),
		progressbar.OptionSetWriter(io.Discard), // it is asked for its text instead
		progressbar.OptionSetWidth(room),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░"}),
	)
	_ = b.Set64(done)
	return strings.TrimSpace(b.String()) + " " + label
}

// Clip cuts s, which has no escape sequences, to width runes.
func Clip(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(0, width)])
}
