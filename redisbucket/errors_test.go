package redisbucket

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// answered is the error that a client makes of a server's words.
func answered(t *testing.T, msg string) error {
	t.Helper()
	rdb := newCanned(t, "-"+msg+"\r\n").client(t)
	err := rdb.Process(t.Context(), command(t.Context(), "eval", "return 1", []string{"k"}, nil))
	assert.EqualError(t, err, msg)
	return err
}

func TestReasonsOfAnswers(t *testing.T) {
	for msg, want := range map[string]lease.Reason{
		"OOM command not allowed when used memory > 'maxmemory'.":                                                                          lease.ReasonOOM,
		"OOM command not allowed when used memory > 'maxmemory'. script: 9e, on @user_script:12.":                                          lease.ReasonOOM,
		"ERR Error running script (call to f_9e): @user_script:12: -OOM command not allowed when used memory":                              lease.ReasonOOM,
		"READONLY You can't write against a read only replica.":                                                                            lease.ReasonReadOnly,
		"READONLY You can't write against a read only replica. script: 9e, on @user_script:209.":                                           lease.ReasonReadOnly,
		"-READONLY You can't write against a read only replica. script: 9e, on @user_script:209.":                                          lease.ReasonReadOnly,
		"ERR Error running script (call to f_9e): @user_script:12: -READONLY You can't write against a read only replica.":                 lease.ReasonReadOnly,
		"ERR Error running script (call to f_9e): @user_script:12: @user_script: 12: -READONLY You can't write against a read only slave.": lease.ReasonReadOnly,
		"LOADING Redis is loading the dataset in memory":                                                                                   lease.ReasonLoading,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                                           lease.ReasonBusy,
		"NOSCRIPT No matching script. Please use EVAL.":                                                                                    lease.ReasonNoScript,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                                                lease.ReasonWrongType,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 9e, on @user_script:70.":                                lease.ReasonWrongType,
		"ERR Error running script (call to f_9e): @user_script:70: WRONGTYPE Operation against a key":                                      lease.ReasonWrongType,
		"CLUSTERDOWN The cluster is down":                                                                                                  lease.ReasonCluster,
		"CLUSTERDOWN Hash slot not served":                                                                                                 lease.ReasonCluster,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                                          lease.ReasonCluster,
		"CROSSSLOT Keys in request don't hash to the same slot":                                                                            lease.ReasonCluster,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                                                 lease.ReasonCluster,
		"MOVED 3999 127.0.0.1:6381":         lease.ReasonCluster,
		"ASK 3999 127.0.0.1:6381":           lease.ReasonCluster,
		"ERR max number of clients reached": lease.ReasonRefused,
		"NOAUTH Authentication required.":   lease.ReasonOther,
		"ERR unknown command 'EVALSHA'":     lease.ReasonOther,
		"ERR user_script:12: attempt to compare nil with number script: 9e, on @user_script:12.": lease.ReasonOther,
	} {
		e := classify("acquire", answered(t, msg))
		assert.Equal(t, want, e.Reason, msg)
		assert.Equal(t, "acquire", e.Op)
		assert.ErrorContains(t, e, msg)
	}
}

func TestCL8_AnOldRedisIsTold(t *testing.T) {
	for _, msg := range []string{
		"ERR Error running script (call to f_9e): @user_script:150: @user_script: 150: Write commands not allowed after non deterministic commands. Call redis.replicate_commands() at the start of your script in order to switch to single commands replication mode.",
		"ERR Write commands are not allowed after non deterministic commands",
	} {
		e := classify("acquire", answered(t, msg))
		assert.Equal(t, lease.ReasonOther, e.Reason)
		assert.ErrorContains(t, e, "needs Redis 5 or newer")
	}
}

func TestReasonsOfFailures(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	for _, tt := range []struct {
		err  error
		want lease.Reason
	}{
		{context.DeadlineExceeded, lease.ReasonTimeout},
		{context.Canceled, lease.ReasonTimeout},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), lease.ReasonTimeout},
		{redis.ErrPoolTimeout, lease.ReasonTimeout},
		{read(os.ErrDeadlineExceeded), lease.ReasonTimeout},
		{dial(syscall.ECONNREFUSED), lease.ReasonRefused},
		{dial(os.ErrDeadlineExceeded), lease.ReasonRefused},
		{dial(&net.DNSError{Err: "no such host", IsTimeout: true}), lease.ReasonRefused},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, lease.ReasonRefused},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, lease.ReasonRefused},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(116)}, lease.ReasonRefused}, // certificate required
		{&net.OpError{Op: "local error", Err: tls.AlertError(80)}, lease.ReasonRefused},
		{read(syscall.ECONNRESET), lease.ReasonRefused},
		{&net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}, lease.ReasonRefused},
		{io.EOF, lease.ReasonRefused},
		{fmt.Errorf("wrapped: %w", io.ErrUnexpectedEOF), lease.ReasonRefused},
		{net.ErrClosed, lease.ReasonRefused},
		{redis.ErrClosed, lease.ReasonRefused},
		{errors.New("redis: cluster has no nodes"), lease.ReasonRefused},
		{errors.New("redis: all ring shards are down"), lease.ReasonRefused},
		{redis.Nil, lease.ReasonMalformed},
		{errors.New("redis: can't parse reply"), lease.ReasonOther},
	} {
		e := classify("take", tt.err)
		assert.Equal(t, tt.want, e.Reason, "%v", tt.err)
		assert.ErrorIs(t, e, tt.err)
	}
}
