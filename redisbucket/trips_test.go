package redisbucket_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// trips counts the round trips of all connections that it makes: the one to connect, and one for each request that is written after
// an answer was read.
type trips struct {
	mu sync.Mutex
	n  int
}

type tripConn struct {
	net.Conn

	trips *trips
	asked bool // and not answered
}

func (r *trips) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	r.add()
	return &tripConn{Conn: c, trips: r}, nil
}

func (r *trips) add() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
}

func (r *trips) take() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.n
	r.n = 0
	return n
}

func (c *tripConn) Write(b []byte) (int, error) {
	if !c.asked {
		c.asked = true
		c.trips.add()
	}
	return c.Conn.Write(b)
}

func (c *tripConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.asked = false
	return n, err
}

// With ContextTimeoutEnabled a connection is made within the StoreTimeout of the call that needs it, or never. docs/operations.md says
// how many round trips that is.
func TestTheRoundTripsOfAFirstDraw(t *testing.T) {
	var r trips
	srv := redistest.Start(t)
	s := redisbucket.New(srv.Client(t, func(o *redis.Options) { o.Dialer = r.dial }))
	require.NoError(t, try(s, lending(10)))
	assert.LessOrEqual(t, r.take(), 6)
	require.NoError(t, try(s, lending(10)))
	assert.Equal(t, 1, r.take(), "from then on")

	c := redistest.StartCluster(t, 3, 0)
	s = redisbucket.New(c.Client(t, func(o *redis.ClusterOptions) { o.Dialer = r.dial }))
	require.NoError(t, try(s, lending(10)))
	assert.LessOrEqual(t, r.take(), 12, "its slots first")
}
