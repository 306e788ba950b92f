package tty

import (
	"bytes"
	"fmt"
)

// A Region is the last lines of a terminal, which are drawn over and over in place.
type Region struct {
	term  *Terminal
	drawn int // lines above the cursor that belong to the region
}

// NewRegion returns an empty region that begins at the cursor, which must be at the start of a line.
func NewRegion(t *Terminal) *Region { return &Region{term: t} }

// Draw replaces what is shown. Each line has to fit the width of the terminal, and all of them its height.
func (r *Region) Draw(lines []string) { r.write(nil, lines) }

// Print writes text, which ends with a line feed, above the region.
func (r *Region) Print(text []byte, lines []string) { r.write(text, lines) }

// write goes back to the first line and clears all below: after a change of the width nobody knows what stands there. It is one
// write, so that nothing flickers.
func (r *Region) write(above []byte, lines []string) {
	var b bytes.Buffer
	b.WriteByte('\r')
	if r.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", r.drawn)
	}
	b.WriteString("\x1b[J")
	b.Write(above)
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	r.drawn = len(lines)
	_, _ = r.term.Write(b.Bytes())
}
