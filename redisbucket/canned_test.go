package redisbucket

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// canned is a server that has one answer to every script, as it stands on the wire.
type canned struct {
	addr    string
	answer  string
	scripts atomic.Int64 // received
}

func newCanned(t *testing.T, answer string) *canned {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &canned{addr: l.Addr().String(), answer: answer}
	var wg sync.WaitGroup
	var conns sync.Map
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Store(conn, nil)
			wg.Go(func() {
				defer conn.Close()
				c.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Range(func(conn, _ any) bool { _ = conn.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return c
}

// client is a client of the server with the retries of the defaults.
func (c *canned) client(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: c.addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (c *canned) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	for {
		name, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "+OK\r\n"
		switch name {
		case "hello":
			answer = "-ERR unknown command 'HELLO'\r\n"
		case "eval", "evalsha":
			c.scripts.Add(1)
			answer = c.answer
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

// readCommand reads a command and gives its name.
func readCommand(r *bufio.Reader) (name string, err error) {
	n, err := readLength(r, '*')
	for i := 0; i < n && err == nil; i++ {
		var size int
		if size, err = readLength(r, '$'); err != nil {
			break
		}
		arg := make([]byte, size+2)
		if _, err = io.ReadFull(r, arg); i == 0 {
			name = strings.ToLower(string(arg[:size]))
		}
	}
	return name, err
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q in place of %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
