package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nodeView is one line of CLUSTER NODES: how one node sees another.
type nodeView struct {
	addr      string
	flags     string
	connected bool
	slots     [][2]int // first and last of each range
}

func clusterNodes(ctx context.Context, n *Server) ([]nodeView, error) {
	reply, err := ask(ctx, n.addr, n.password, "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	return parseNodes(reply[0])
}

// parseNodes reads lines of
// "id host:port@bus[,name] flags master ping pong epoch link slot slot...".
func parseNodes(text string) ([]nodeView, error) {
	var views []nodeView
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES: short line %q", line)
		}
		addr, _, _ := strings.Cut(f[1], "@")
		v := nodeView{addr: addr, flags: f[2], connected: f[7] == "connected"}
		for _, s := range f[8:] {
			if strings.HasPrefix(s, "[") {
				continue // on its way to another node
			}
			a, b, ranged := strings.Cut(s, "-")
			if !ranged {
				b = a
			}
			first, err1 := strconv.Atoi(a)
			last, err2 := strconv.Atoi(b)
			if err := errors.Join(err1, err2); err != nil {
				return nil, fmt.Errorf("CLUSTER NODES: slots %q: %w", s, err)
			}
			v.slots = append(v.slots, [2]int{first, last})
		}
		views = append(views, v)
	}
	return views, nil
}

// masterFor returns the address that serves the slot of key, as n sees it.
func masterFor(ctx context.Context, n *Server, key string) (string, error) {
	reply, err := ask(ctx, n.addr, n.password, "CLUSTER", "KEYSLOT", key)
	if err != nil {
		return "", err
	}
	slot, err := strconv.Atoi(reply[0])
	if err != nil {
		return "", err
	}
	views, err := clusterNodes(ctx, n)
	if err != nil {
		return "", err
	}
	for _, v := range views {
		if strings.Contains(v.flags, "fail") {
			continue
		}
		for _, r := range v.slots {
			if r[0] <= slot && slot <= r[1] {
				return v.addr, nil
			}
		}
	}
	return "", fmt.Errorf("node %s sees no master for slot %d", n.addr, slot)
}

// hasRole says why a server is not a "master" or "slave", or nil.
func hasRole(ctx context.Context, s *Server, role string) error {
	reply, err := ask(ctx, s.addr, s.password, "ROLE")
	if err != nil {
		return err
	}
	if reply[0] != role {
		return fmt.Errorf("%s is a %s", s.addr, reply[0])
	}
	return nil
}

// inStep says why a replica does not follow its master yet; masters always do.
func inStep(ctx context.Context, s *Server) error {
	info, err := ask(ctx, s.addr, s.password, "INFO", "replication")
	if err != nil {
		return err
	}
	if hasLine(info[0], "role:slave") && !hasLine(info[0], "master_link_status:up") {
		return fmt.Errorf("replica %s is not in step", s.addr)
	}
	return nil
}

// hasLine reports whether one of the lines of an INFO text is want.
func hasLine(info, want string) bool {
	return slices.Contains(strings.Split(info, "\r\n"), want)
}

// pairs turns a flat list of names and values into a map.
func pairs(list []string) map[string]string {
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

func addrsOf(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.addr
	}
	return addrs
}

// serverAt returns the server with this address, or nil.
func serverAt(servers []*Server, addr string) *Server {
	for _, s := range servers {
		if s.addr == addr {
			return s
		}
	}
	return nil
}
