package childproc

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPoolsOfTwoProcessesKeepApart(t *testing.T) {
	t.Parallel()
	var a, b portPool
	defer a.close()
	defer b.close()
	seen := map[int]bool{}
	for range 2*blockSize + 3 {
		for _, p := range []*portPool{&a, &b} {
			port, err := p.Take()
			require.NoError(t, err)
			require.False(t, seen[port], "port %d was given twice", port)
			seen[port] = true
			require.True(t, firstPort < port && port+busOffset < 32768, "port %d", port)
		}
	}
}

func TestPoolPassesOverPortsInUse(t *testing.T) {
	t.Parallel()
	var p portPool
	defer p.close()
	port, err := p.Take()
	require.NoError(t, err)
	for _, inUse := range []int{port, port + busOffset} {
		l, err := listen(inUse)
		require.NoError(t, err)
		p.mu.free = append([]int{port}, p.mu.free...)
		other, err := p.Take()
		require.NoError(t, err)
		assert.NotEqual(t, port, other)
		require.NoError(t, l.Close())
	}
}

func (p *portPool) close() {
	for _, l := range p.mu.claims {
		_ = l.Close()
	}
}
