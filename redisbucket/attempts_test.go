package redisbucket

import (
	"testing"

	"github.com/leaselimit/leaselimit/internal/faultproxy"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// every runs each operation of s once and gives their errors.
func every(t *testing.T, s *Store) map[string]error {
	t.Helper()
	req := asked()
	errs := map[string]error{}
	_, errs["acquire"] = s.Acquire(t.Context(), req)
	errs["return"] = s.Return(t.Context(), []lease.Return{{Key: req.Key, Terms: req.Terms, Waiters: 1}})
	_, errs["take"] = s.Take(t.Context(), []lease.Charge{{Key: req.Key, Terms: req.Terms, Cost: 1}})
	_, errs["peek"] = s.Peek(t.Context(), req.Key, req.Terms)
	errs["reset"] = s.Reset(t.Context(), req.Key)
	return errs
}

// failAs checks that all of the operations fail, each under its name.
func failAs(t *testing.T, errs map[string]error, reason lease.Reason) {
	t.Helper()
	for op, err := range errs {
		var se *lease.StoreError
		if assert.ErrorAs(t, err, &se, op) {
			assert.Equal(t, op, se.Op)
			assert.Equal(t, reason, se.Reason, "%v", err)
		}
	}
}

func TestRF4_AServerThatNeverKnowsTheScript(t *testing.T) {
	srv := newCanned(t, "-NOSCRIPT No matching script. Please use EVAL.\r\n")
	errs := every(t, New(srv.client(t)))
	failAs(t, errs, lease.ReasonNoScript)
	assert.EqualValues(t, 2*len(errs), srv.scripts.Load(), "two attempts, then it is the caller's turn")
}

// Answers that a client would repeat a command for, if it were let.
func TestRF4_OneAttemptForEveryOtherAnswer(t *testing.T) {
	for answer, reason := range map[string]lease.Reason{
		"-LOADING Redis is loading the dataset in memory\r\n":        lease.ReasonLoading,
		"-READONLY You can't write against a read only replica.\r\n": lease.ReasonReadOnly,
		"-TRYAGAIN Multiple keys request during rehashing\r\n":       lease.ReasonCluster,
		"-CLUSTERDOWN The cluster is down\r\n":                       lease.ReasonCluster,
		"-ERR max number of clients reached\r\n":                     lease.ReasonRefused,
		"-BUSY Redis is busy running a script.\r\n":                  lease.ReasonBusy,
		"-OOM command not allowed\r\n":                               lease.ReasonOOM,
	} {
		srv := newCanned(t, answer)
		errs := every(t, New(srv.client(t)))
		failAs(t, errs, reason)
		assert.EqualValues(t, len(errs), srv.scripts.Load(), answer)
	}
}

// At connect, at send, at read, at parse: an error with a reason each time, never a panic and never a grant.
func TestRF13_EveryWayToFailIsAnError(t *testing.T) {
	t.Run("connect", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
		defer rdb.Close()
		failAs(t, every(t, New(rdb)), lease.ReasonRefused)
	})
	t.Run("refused after the handshake of TCP", func(t *testing.T) {
		p := faultproxy.New(t, redistest.Addr(t))
		p.Refuse(true)
		rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), DialerRetries: 1})
		defer rdb.Close()
		failAs(t, every(t, New(rdb)), lease.ReasonRefused)
	})
	t.Run("send", func(t *testing.T) {
		p := faultproxy.New(t, redistest.Addr(t))
		rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), DialerRetries: 1})
		defer rdb.Close()
		require.NoError(t, rdb.Ping(t.Context()).Err())
		p.Refuse(true)
		p.CloseAll()
		failAs(t, every(t, New(rdb)), lease.ReasonRefused)
	})
	t.Run("read", func(t *testing.T) {
		p := faultproxy.New(t, redistest.Addr(t))
		rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), DialerRetries: 1})
		defer rdb.Close()
		warm(t, rdb, 8)
		p.CutAfter(0)
		failAs(t, every(t, New(rdb, WithPrefix(redistest.Prefix(t)))), lease.ReasonRefused)
	})
	for _, answer := range []string{
		":1\r\n", "+OK\r\n", "$-1\r\n", "$3\r\nabc\r\n", "*-1\r\n", "*1\r\n$1\r\n1\r\n", "*0\r\n", "$2\r\n\x00\xff\r\n",
		"*9\r\n:1\r\n:1\r\n:1\r\n:1\r\n$3\r\nnan\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n0\r\n:1\r\n",
	} {
		t.Run("parse "+answer, func(t *testing.T) {
			for op, err := range every(t, New(newCanned(t, answer).client(t))) {
				if op == "reset" && answer == ":1\r\n" {
					continue // which is its reply
				}
				assert.Equal(t, lease.ReasonMalformed, lease.ReasonOf(err), "%s: %v", op, err)
			}
		})
	}
	t.Run("parse what is no protocol", func(t *testing.T) {
		for op, err := range every(t, New(newCanned(t, "HTTP/1.1 400 Bad Request\r\n\r\n").client(t))) {
			assert.Error(t, err, op)
		}
	})
}
