package tty

import "os"

// A Style sets off words. The zero Style leaves them as they are.
type Style struct{ on bool }

// StyleFor is the style for a terminal, or for none if t is nil. It is plain where NO_COLOR is set (no-color.org).
func StyleFor(t *Terminal) Style {
	return Style{on: t != nil && os.Getenv("NO_COLOR") == ""}
}

func (s Style) wrap(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold is for what matters most.
func (s Style) Bold(text string) string { return s.wrap("1", text) }

// Dim is for what matters less.
func (s Style) Dim(text string) string { return s.wrap("2", text) }

// Good is for what is as it should be.
func (s Style) Good(text string) string { return s.wrap("32", text) }

// Bad is for what is not.
func (s Style) Bad(text string) string { return s.wrap("1;31", text) }
