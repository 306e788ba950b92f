package childproc

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports lie in [firstPort, firstPort+blocks*blockSize) = [11000, 20984), and
// the Cluster bus, which is busOffset above its server, below 31000: both out
// of the way of the ephemeral ports that outgoing connections get (32768 and up
// on Linux, 49152 elsewhere). A port out of net.Listen(":0") lies among those,
// and was taken by somebody's connection before the server could bind it.
const (
	firstPort = 11000
	blockSize = 64
	blocks    = 156
	busOffset = 10000
)

// portPool hands out ports. Test processes that run at the same time keep apart
// by blocks: a process owns a block while it listens on the block's first port,
// and the kernel takes the block back when the process ends, however it ends. A
// lock file would stay behind, and checking a port that is free now says nothing
// about a server that is restarted on it later.
type portPool struct {
	mu struct {
		sync.Mutex
		claims []net.Listener // held until the process ends, never accepted from
		free   []int          // of the claimed blocks; first in, first out, to reuse a port late
	}
}

// Ports are those of this process.
var Ports portPool

// Take returns a port that is free, as is its Cluster bus port. It stays this
// process' own until Put.
func (p *portPool) Take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for range p.mu.free {
			port := p.mu.free[0]
			p.mu.free = p.mu.free[1:]
			if isFree(port) && isFree(port+busOffset) {
				return port, nil
			}
			p.mu.free = append(p.mu.free, port) // somebody else's for now
		}
		if err := p.claimLocked(); err != nil {
			return 0, err
		}
	}
}

// Put gives a port back.
func (p *portPool) Put(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.free = append(p.mu.free, port)
}

func (p *portPool) claimLocked() error {
	start := rand.IntN(blocks)
	for i := range blocks {
		base := firstPort + (start+i)%blocks*blockSize
		l, err := listen(base)
		if err != nil {
			continue
		}
		p.mu.claims = append(p.mu.claims, l)
		for port := base + 1; port < base+blockSize; port++ {
			p.mu.free = append(p.mu.free, port)
		}
		return nil
	}
	return errors.New("every block of ports is taken")
}

func isFree(port int) bool {
	l, err := listen(port)
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
