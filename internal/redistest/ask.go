package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// askTimeout bounds one question. A paused or frozen server costs a poll this
// much, no more.
const askTimeout = time.Second

// ask sends one command on a connection of its own and returns the reply, a
// nested one flattened and nil as "". An error reply is an error.
//
// The harness does not use go-redis for itself: its pool answers a refused
// connection with retries and a background goroutine, which is right for a
// client and wrong for a loop that waits for a server to come up.
func ask(ctx context.Context, addr, password string, args ...string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r := bufio.NewReader(conn)
	if password != "" {
		if _, err := askOn(conn, r, "AUTH", password); err != nil {
			return nil, err
		}
	}
	return askOn(conn, r, args...)
}

func askOn(w io.Writer, r *bufio.Reader, args ...string) ([]string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return nil, err
	}
	return readReply(r, nil)
}

// readReply appends one RESP2 reply to the strings in into.
func readReply(r *bufio.Reader, into []string) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty reply line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return append(into, rest), nil
	case '-':
		return nil, errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return nil, fmt.Errorf("unexpected reply %q", line)
	}
	switch {
	case n < 0:
		return append(into, ""), nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		return append(into, string(b[:n])), nil
	case kind == '*':
		for range n {
			if into, err = readReply(r, into); err != nil {
				return nil, err
			}
		}
		return into, nil
	}
	return nil, fmt.Errorf("unexpected reply %q", line)
}
