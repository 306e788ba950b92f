// Package tty tells terminals from files, and writes for the people in front of them.
package tty

import (
	"io"
	"os"

	"golang.org/x/term"
)

// A Terminal is a screen that lines can be written over on.
type Terminal struct{ file *os.File }

// Of returns the terminal behind w, or nil if there is none that can move its cursor.
func Of(w io.Writer) *Terminal {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Terminal{file: f}
}

// Size is the size of the terminal now: it may change at any time. An unknown one is 80 by 24.
func (t *Terminal) Size() (width, height int) {
	width, height, err := term.GetSize(int(t.file.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Write writes to the terminal.
func (t *Terminal) Write(p []byte) (int, error) { return t.file.Write(p) }
