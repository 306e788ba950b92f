// Package pgnotify has a [quota.Cache] look up changed limits at once: it listens for what the triggers of sqlquota's schema
// (0002_notify.sql) tell on a channel of PostgreSQL. It needs one connection of its own, not through a pooler that lends a
// connection for one transaction.
//
// What is not promised: that every change is pushed. A notification is lost while the connection is; everything is
// invalidated once it is back. The cache's TTL goes on working all the while, so push makes a change quicker and nothing
// else.
//
// [quota.Cache]: https://pkg.go.dev/github.com/leaselimit/leaselimit/quota#Cache
package pgnotify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// Channel is what the triggers of sqlquota's schema notify.
const Channel = "leaselimit_quota"

// Invalidator is what is told of changes: a quota.Cache.
type Invalidator interface {
	Invalidate(tenant string)
	InvalidateAll()
}

// Connect opens a connection, which Run closes.
type Connect func(ctx context.Context) (*pgx.Conn, error)

// An Option changes what [Run] does.
type Option func(*listener)

// WithChannel sets the channel; default [Channel]. The payload of its notifications is a tenant, or empty for all.
func WithChannel(name string) Option { return func(l *listener) { l.channel = name } }

// WithCheck sets how long the connection may be silent before it is asked whether it still lives, and how long it may take
// to answer; default 15s. A connection that a firewall has dropped is noticed after twice that.
func WithCheck(d time.Duration) Option { return func(l *listener) { l.check = d } }

// WithLogger sets who gets a line when the connection is lost and when it is back; default slog.Default().
func WithLogger(logger *slog.Logger) Option { return func(l *listener) { l.logger = logger } }

// Run tells cache of every change until ctx is done, and then returns nil. It connects again by itself, with growing pauses.
// It starts no goroutine: call it in one of yours. An error is about an argument, and returned at once.
func Run(ctx context.Context, connect Connect, cache Invalidator, opts ...Option) error {
	l := &listener{connect: connect, cache: cache, channel: Channel, check: 15 * time.Second, logger: slog.Default()}
	for _, opt := range opts {
		opt(l)
	}
	switch {
	case connect == nil:
		return errors.New("pgnotify: connect is nil")
	case cache == nil:
		return errors.New("pgnotify: cache is nil")
	case l.channel == "":
		return errors.New("pgnotify: WithChannel is empty, must be a name")
	case l.check <= 0:
		return fmt.Errorf("pgnotify: WithCheck is %v, must be positive", l.check)
	case l.logger == nil:
		return errors.New("pgnotify: WithLogger is nil, must be a logger")
	}
	l.run(ctx)
	return nil
}

// The pauses between connections double from firstPause to lastPause while none works.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// connectTimeout bounds the making of a connection, closeTimeout its orderly end.
const (
	connectTimeout = 10 * time.Second
	closeTimeout   = time.Second
)

type listener struct {
	connect Connect
	cache   Invalidator
	channel string
	check   time.Duration
	logger  *slog.Logger

	failures int // in a row
}

func (l *listener) run(ctx context.Context) {
	for {
		err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if l.failures == 0 {
			l.logger.Warn("pgnotify: not listening, limits change by the cache's TTL alone", "error", err)
		}
		pause := min(lastPause, firstPause<<min(l.failures, 10))
		l.failures++
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return
		}
	}
}

// listen is one connection, from its beginning to its end.
func (l *listener) listen(ctx context.Context) error {
	conn, err := l.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	// Only now, when nothing more can be missed.
	l.cache.InvalidateAll()
	if l.failures > 0 {
		l.logger.Info("pgnotify: listening again")
	}
	l.failures = 0
	for {
		if err := l.next(ctx, conn); err != nil {
			return err
		}
	}
}

func (l *listener) open(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// next waits for one notification, or sees that the connection still lives.
func (l *listener) next(ctx context.Context, conn *pgx.Conn) error {
	quiet, cancel := context.WithTimeout(ctx, l.check)
	defer cancel()
	n, err := conn.WaitForNotification(quiet)
	switch {
	case err == nil && n.Payload == "":
		l.cache.InvalidateAll()
	case err == nil:
		l.cache.Invalidate(n.Payload)
	case quiet.Err() == nil || ctx.Err() != nil:
		return err
	default:
		ctx, cancel := context.WithTimeout(ctx, l.check)
		defer cancel()
		return conn.Ping(ctx)
	}
	return nil
}
