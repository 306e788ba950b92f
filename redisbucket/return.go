package redisbucket

import (
	"context"
	"fmt"

	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/lease"
)

// maxPipeline is the most returns in one pipeline: some 300 kB to be sent, and replies of a few kB.
const maxPipeline = 1000

// Return gives tokens back, as [lease.Store] says: all items in one pipeline, but for very many. The error tells how many
// failed and why the first of them did; the others were returned.
func (s *Store) Return(ctx context.Context, items []lease.Return) error {
	var failures int
	var first *lease.StoreError
	for rest := items; len(rest) > 0; {
		n := min(len(rest), maxPipeline)
		for _, g := range s.giveBack(ctx, rest[:n]) {
			if g.err == nil {
				continue
			}
			if failures++; first == nil {
				first = g.err
			}
		}
		rest = rest[n:]
	}
	if failures == 0 {
		return nil
	}
	return &lease.StoreError{
		Op: "return", Reason: first.Reason,
		Err: fmt.Errorf("%d of %d: %w", failures, len(items), first.Err),
	}
}

// giving is a return under way.
type giving struct {
	item lease.Return
	cmd  once
	err  *lease.StoreError
}

// giveBack sends the returns in one pipeline. Those that met a server which does not know the script, and only those, are
// sent once more in full; go-redis does not do that in a pipeline.
func (s *Store) giveBack(ctx context.Context, items []lease.Return) []*giving {
	all := make([]*giving, len(items))
	sent := make([]*giving, 0, len(items))
	for i, item := range items {
		g := &giving{item: item}
		all[i] = g
		if err := wire.Return(item); err != nil {
			g.err = &lease.StoreError{Op: "return", Reason: lease.ReasonOther, Err: err}
			continue
		}
		g.cmd = returnScript.byHash(ctx, []string{s.RedisKey(item.Key)}, returnArgs(item))
		sent = append(sent, g)
	}
	s.pipeline(ctx, sent)

	var again []*giving
	for _, g := range sent {
		if isNoScript(g.cmd.Err()) {
			g.cmd = returnScript.byText(ctx, []string{s.RedisKey(g.item.Key)}, returnArgs(g.item))
			again = append(again, g)
		}
	}
	s.pipeline(ctx, again)

	for _, g := range sent {
		if err := g.cmd.Err(); err != nil {
			g.err = s.failed(ctx, "return", err)
		} else if err := parseReturn(g.cmd.Val(), g.item); err != nil {
			g.err = malformed("return", err)
		}
	}
	return all
}

// pipeline executes the commands in one trip to each server. Each keeps its own result.
func (s *Store) pipeline(ctx context.Context, gs []*giving) {
	err := ctx.Err()
	if err == nil && len(gs) > 0 {
		pipe := s.rdb.Pipeline()
		for _, g := range gs {
			_ = pipe.Process(ctx, g.cmd) // which only queues it
		}
		_, err = pipe.Exec(ctx)
	}
	// The client puts errors into the commands, but a hook of the client may have failed before anything was sent.
	for _, g := range gs {
		if err != nil && g.cmd.Err() == nil && g.cmd.Val() == nil {
			g.cmd.SetErr(err)
		}
	}
}
