package faultproxy

import (
	"bytes"
	"strconv"
	"strings"
)

const (
	maxLine = 64 << 10 // of an inline command, as in Redis; a header is far shorter
	maxName = 64       // no command is called longer
)

// commandParser finds the names of the commands in what a client sends: arrays
// of bulk strings, or inline commands. It takes the stream in pieces of any size
// and keeps nothing of the arguments. Once it has met what is neither, it finds
// nothing more on that connection: it would only guess.
type commandParser struct {
	found func(name string) // called with every complete command, in upper case

	line   []byte // of a header whose end has not come
	args   int    // bulk strings still to come of this command
	skip   int    // bytes still to come of this bulk string, CRLF included
	naming bool   // this bulk string is the command's name
	name   []byte
	lost   bool
}

func (c *commandParser) feed(b []byte) {
	for len(b) > 0 && !c.lost {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			c.argument(b[:n])
			b = b[n:]
			continue
		}
		head, rest, whole := bytes.Cut(b, []byte("\n"))
		c.line = append(c.line, head...)
		if c.lost = len(c.line) > maxLine; c.lost || !whole {
			return
		}
		c.header(strings.TrimSuffix(string(c.line), "\r"))
		c.line = c.line[:0]
		b = rest
	}
}

// header takes a line between bulk strings.
func (c *commandParser) header(line string) {
	kind := byte(0)
	if line != "" {
		kind = line[0]
	}
	switch {
	case c.args > 0: // the next argument
		n, err := strconv.Atoi(strings.TrimPrefix(line, "$"))
		if kind != '$' || err != nil || n < 0 {
			c.lost = true
			return
		}
		c.skip = n + len("\r\n")
	case kind == '*': // a command; an empty one is allowed and does nothing
		n, err := strconv.Atoi(line[1:])
		if err != nil {
			c.lost = true
			return
		}
		c.args, c.naming, c.name = max(0, n), true, c.name[:0]
	default:
		if words := strings.Fields(line); len(words) > 0 {
			c.found(strings.ToUpper(words[0]))
		}
	}
}

// argument takes the next piece of a bulk string.
func (c *commandParser) argument(b []byte) {
	if c.naming {
		c.name = append(c.name, b[:min(len(b), maxName-len(c.name))]...)
	}
	c.skip -= len(b)
	if c.skip > 0 {
		return
	}
	c.naming = false
	c.args--
	if c.args == 0 {
		c.found(strings.ToUpper(strings.TrimSuffix(string(c.name), "\r\n")))
	}
}
