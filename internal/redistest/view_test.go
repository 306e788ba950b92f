package redistest

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseNodes(t *testing.T) {
	t.Parallel()
	got, err := parseNodes("07c3 127.0.0.1:30004@31004,hostname4 slave e7d1 0 1426238317239 4 connected\n" +
		"67ed 127.0.0.1:30002@31002 master - 0 1426238316232 2 disconnected 5461-10922 11000 [5462->-07c3]\n")
	require.NoError(t, err)
	assert.Equal(t, []nodeView{
		{addr: "127.0.0.1:30004", flags: "slave", connected: true},
		{addr: "127.0.0.1:30002", flags: "master", slots: [][2]int{{5461, 10922}, {11000, 11000}}},
	}, got)

	for _, bad := range []string{"07c3 127.0.0.1:30004@31004 slave\n", "a b:1@2 master - 0 0 1 connected x-y\n"} {
		_, err := parseNodes(bad)
		require.Error(t, err)
	}
}

func TestReadReply(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		want []string
		err  string
	}{
		{in: "+PONG\r\n", want: []string{"PONG"}},
		{in: ":12\r\n", want: []string{"12"}},
		{in: "$4\r\na\r\nb\r\n", want: []string{"a\r\nb"}},
		{in: "$-1\r\n", want: []string{""}},
		{in: "*3\r\n$1\r\na\r\n*2\r\n:1\r\n:2\r\n$0\r\n\r\n", want: []string{"a", "1", "2", ""}},
		{in: "-ERR no\r\n", err: "ERR no"},
		{in: "-ERR", err: "EOF"},
		{in: "$4\r\nab", err: "EOF"},
		{in: "?\r\n", err: "unexpected"},
		{in: "\r\n", err: "empty"},
	} {
		got, err := readReply(bufio.NewReader(strings.NewReader(tc.in)), nil)
		assert.Equal(t, tc.want, got, "%q", tc.in)
		if tc.err != "" {
			require.ErrorContains(t, err, tc.err, "%q", tc.in)
		} else {
			require.NoError(t, err, "%q", tc.in)
		}
	}
}
