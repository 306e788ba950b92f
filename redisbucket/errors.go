package redisbucket

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/redis/go-redis/v9"
)

func malformed(op string, err error) *lease.StoreError {
	return &lease.StoreError{Op: op, Reason: lease.ReasonMalformed, Err: err}
}

func isNoScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// classify is err as the store reports it.
func classify(op string, err error) *lease.StoreError {
	e := &lease.StoreError{Op: op, Err: err}
	var answer redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		e.Reason = lease.ReasonMalformed
	case errors.As(err, &answer):
		e.Reason = reasonOfAnswer(answer.Error())
		if strings.Contains(answer.Error(), "not allowed after non deterministic commands") {
			e.Err = fmt.Errorf("leaselimit needs Redis 5 or newer, this server is older: %w", err)
		}
	default:
		e.Reason = reasonOfFailure(err)
	}
	return e
}

// reasonOfFailure is the reason of an error that is no answer of the server.
func reasonOfFailure(err error) lease.Reason {
	var timeout interface{ Timeout() bool }
	switch {
	// An attempt to connect that took too long is first of all no connection: nothing was sent.
	case noConnection(err):
		return lease.ReasonRefused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return lease.ReasonTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNREFUSED),
		errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolExhausted):
		return lease.ReasonRefused
	case slices.ContainsFunc(nobody, func(text string) bool { return strings.Contains(err.Error(), text) }):
		return lease.ReasonRefused
	}
	return lease.ReasonOther
}

// noConnection reports whether err is that of a connection that could not be made, by TCP or by TLS.
func noConnection(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op == "dial" || op.Op == "remote error" || op.Op == "local error" // the last two are alerts of TLS
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return untrusted || plain
}

// nobody are the errors by which clients of several servers say that none is there. They are not exported.
var nobody = []string{
	"redis: cluster has no nodes",
	"redis: all ring shards are down",
	"redis: all sentinels specified in configuration are unreachable",
}

// codes are the words that an answer of the server begins with, or that a script's error carries.
var codes = []struct {
	code   string
	reason lease.Reason
}{
	{"OOM", lease.ReasonOOM},
	{"READONLY", lease.ReasonReadOnly},
	{"LOADING", lease.ReasonLoading},
	{"BUSY", lease.ReasonBusy},
	{"NOSCRIPT", lease.ReasonNoScript},
	{"WRONGTYPE", lease.ReasonWrongType},
	{"CLUSTERDOWN", lease.ReasonCluster},
	{"MASTERDOWN", lease.ReasonCluster},
	{"TRYAGAIN", lease.ReasonCluster},
	{"CROSSSLOT", lease.ReasonCluster},
	{"MOVED", lease.ReasonCluster},
	{"ASK", lease.ReasonCluster},
}

// reasonOfAnswer is the reason of an error answer. Redis 7 lets the code of an error inside a script stand first; before, it
// was "ERR Error running script (call to f_..): @user_script:5: -READONLY You can't ..", some codes without the dash.
func reasonOfAnswer(msg string) lease.Reason {
	for _, c := range codes {
		if strings.HasPrefix(msg, c.code+" ") || strings.HasPrefix(msg, "-"+c.code+" ") ||
			strings.Contains(msg, ": "+c.code+" ") || strings.Contains(msg, ": -"+c.code+" ") {
			return c.reason
		}
	}
	if msg == "ERR max number of clients reached" {
		return lease.ReasonRefused
	}
	return lease.ReasonOther
}
