// Package dial turns the address of a Redis, as a person writes it, into clients.
package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Usage describes the addresses that Parse understands, for the help of a flag.
const Usage = "host:port, a redis:// or rediss:// URL, or the comma-separated addresses of a Cluster"

// A Server makes clients of one Redis.
type Server func() redis.UniversalClient

// Parse understands host:port, redis:// and rediss:// URLs (TLS, user, password and database are in them; a URL that names
// further nodes by addr=host:port is of a Cluster), and comma-separated host:port of a Cluster. Nothing is sent.
func Parse(addr string) (Server, error) {
	quiet()
	switch {
	case addr == "":
		return nil, errors.New("the address of Redis is empty")
	case strings.Contains(addr, "://"):
		return parseURL(addr)
	}
	addrs := strings.Split(addr, ",")
	for i, a := range addrs {
		addrs[i] = strings.TrimSpace(a)
		if _, _, err := net.SplitHostPort(addrs[i]); err != nil {
			return nil, fmt.Errorf("%q is no host:port", addrs[i])
		}
	}
	if len(addrs) > 1 {
		return cluster(&redis.ClusterOptions{Addrs: addrs}), nil
	}
	return single(&redis.Options{Addr: addrs[0]}), nil
}

func parseURL(addr string) (Server, error) {
	u, err := url.Parse(addr)
	if err != nil {
		return nil, hideURL(err)
	}
	if u.Query().Has("addr") {
		opts, err := redis.ParseClusterURL(addr)
		if err != nil {
			return nil, hideURL(err)
		}
		return cluster(opts), nil
	}
	opts, err := redis.ParseURL(addr)
	if err != nil {
		return nil, hideURL(err)
	}
	return single(opts), nil
}

// hideURL takes the URL, which may hold a password, out of an error.
func hideURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return fmt.Errorf("the URL of Redis is not valid: %w", err)
}

// The clients keep the deadlines of contexts, which go-redis leaves off by default, and tell at once why they cannot connect
// instead of trying for longer than anybody waits.

func single(opts *redis.Options) Server {
	return func() redis.UniversalClient {
		o := *opts
		o.ContextTimeoutEnabled, o.DialerRetries = true, cmp.Or(o.DialerRetries, 1)
		return redis.NewClient(&o)
	}
}

func cluster(opts *redis.ClusterOptions) Server {
	return func() redis.UniversalClient {
		o := *opts
		o.ContextTimeoutEnabled, o.DialerRetries = true, cmp.Or(o.DialerRetries, 1)
		return redis.NewClusterClient(&o)
	}
}

// quiet keeps go-redis from writing to standard error on its own: what fails is reported once, by who asked.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
