package faultproxy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCommandParser(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in string
		want     string
	}{
		{"one", "*1\r\n$4\r\nPING\r\n", "PING"},
		{"lower case", "*2\r\n$7\r\nevalsha\r\n$2\r\nab\r\n", "EVALSHA"},
		{"pipeline", "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n$4\r\nQUIT\r\n", "PING SET QUIT"},
		{"an argument that looks like a command", "*2\r\n$4\r\nECHO\r\n$14\r\n*1\r\n$4\r\nPING\r\n\r\n", "ECHO"},
		{"inline", "PING\r\nset k v\n\r\n*1\r\n$4\r\nQUIT\r\n", "PING SET QUIT"},
		{"empty array", "*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n", "PING"},
		{"incomplete", "*2\r\n$3\r\nGET\r\n$3\r\nab", ""},
		{"a name too long is cut", "*1\r\n$100\r\n" + strings.Repeat("x", 100) + "\r\n", strings.Repeat("X", 64)},
		{"garbage ends it", "*1\r\n$4\r\nPING\r\n*2\r\n?4\r\nPING\r\n*1\r\n$4\r\nPING\r\n", "PING"},
		{"no number", "*x\r\n*1\r\n$4\r\nPING\r\n", ""},
		{"negative length", "*1\r\n$-5\r\n*1\r\n$4\r\nPING\r\n", ""},
		{"endless line", strings.Repeat("y", maxLine+1) + "\r\nPING\r\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, piece := range []int{1, 2, 3, 5, 7, 11, len(tc.in)} {
				var found []string
				c := commandParser{found: func(name string) { found = append(found, name) }}
				for in := tc.in; in != ""; {
					n := min(piece, len(in))
					c.feed([]byte(in[:n]))
					in = in[n:]
				}
				assert.Equal(t, tc.want, strings.Join(found, " "), "in pieces of %d", piece)
			}
		})
	}
}
