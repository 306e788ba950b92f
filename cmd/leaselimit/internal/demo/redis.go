package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/dial"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
)

// connectTimeout bounds the first word with Redis.
const connectTimeout = 5 * time.Second

// remote is a shared bucket in Redis.
type remote struct {
	server  dial.Server
	prefix  string
	own     redis.UniversalClient // for what the demo does beside its replicas
	clients []redis.UniversalClient
}

func newRemote(addr, prefix string) (*remote, error) {
	server, err := dial.Parse(addr)
	if err != nil {
		return nil, cli.Usagef("-redis: %v", err)
	}
	return &remote{server: server, prefix: prefix, own: server()}, nil
}

func (r *remote) kind() string { return "redis" }

func (r *remote) store(ctx context.Context) (lease.Store, error) {
	client := r.server()
	r.clients = append(r.clients, client)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("redis does not answer: %w", err)
	}
	return r.buckets(client), nil
}

func (r *remote) buckets(client redis.UniversalClient) *redisbucket.Store {
	return redisbucket.New(client, redisbucket.WithPrefix(r.prefix))
}

func (r *remote) look(ctx context.Context, key lease.Key, terms lease.Terms) (lease.State, error) {
	return r.buckets(r.own).Peek(ctx, key, terms)
}

// clock asks the server that has the bucket, of all of a Cluster.
func (r *remote) clock(ctx context.Context, key lease.Key) (reading, error) {
	const script = `return redis.call('TIME')`
	before := time.Now()
	now, err := r.own.Eval(ctx, script, []string{r.buckets(r.own).RedisKey(key)}).Int64Slice()
	after := time.Now()
	switch {
	case err != nil:
		return reading{}, fmt.Errorf("time of redis: %w", err)
	case len(now) != 2:
		return reading{}, fmt.Errorf("time of redis: %d numbers in place of 2", len(now))
	}
	return reading{before: before, after: after, server: time.Unix(now[0], now[1]*1000)}, nil
}

// drop deletes the key. Nobody else has the tenant, so what a reset would keep, the leases that are out, is of no use.
func (r *remote) drop(ctx context.Context, key lease.Key) error {
	return r.own.Del(ctx, r.buckets(r.own).RedisKey(key)).Err()
}

func (r *remote) close() {
	for _, client := range append(r.clients, r.own) {
		_ = client.Close()
	}
}
