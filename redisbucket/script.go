package redisbucket

import (
	"context"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/scripts"
	"github.com/redis/go-redis/v9"
)

// A script is one of the steps: its name in errors, its text and the hash by which a server knows it.
type script struct {
	op, text, sha string
}

func newScript(op, text string) script {
	return script{op: op, text: text, sha: redis.NewScript(text).Hash()}
}

var (
	acquireScript = newScript("acquire", scripts.Acquire)
	returnScript  = newScript("return", scripts.Return)
	takeScript    = newScript("take", scripts.Take)
	peekScript    = newScript("peek", scripts.Peek)
	resetScript   = newScript("reset", scripts.Reset)
	censusScript  = newScript("present", scripts.Census)
)

// once is a command that the client must not send again after a failure that leaves open whether it was executed. Left to
// itself, go-redis runs a script whose answers are late four times. Redirects of a Cluster are still followed: they are
// answers, and say that nothing was executed.
type once struct {
	*redis.Cmd
}

// NoRetry tells the client so.
func (once) NoRetry() bool { return true }

// byHash is the script as EVALSHA, byText as EVAL.
func (sc script) byHash(ctx context.Context, keys []string, args []any) once {
	return command(ctx, "evalsha", sc.sha, keys, args)
}

func (sc script) byText(ctx context.Context, keys []string, args []any) once {
	return command(ctx, "eval", sc.text, keys, args)
}

func command(ctx context.Context, name, body string, keys []string, args []any) once {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, body, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3) // what a Cluster and a Ring route by
	cmd.SetStepCount(1)   // or a Cluster would be asked for its table of commands first
	return once{cmd}
}

// run executes a script on the buckets under keys: by its hash, and if the server does not know it, once more in full.
func (s *Store) run(ctx context.Context, sc script, keys []string, args []any) (any, error) {
	cmd := sc.byHash(ctx, keys, args)
	err := s.rdb.Process(ctx, cmd)
	if isNoScript(err) {
		cmd = sc.byText(ctx, keys, args)
		err = s.rdb.Process(ctx, cmd)
	}
	if err != nil {
		return nil, s.failed(ctx, sc.op, err)
	}
	return cmd.Val(), nil
}

// failed is the error of a call, and sees to it that a Cluster client learns of a failover: it reloads its slots after a
// network error only where it would send the command again.
func (s *Store) failed(ctx context.Context, op string, err error) *lease.StoreError {
	e := classify(op, err)
	switch e.Reason {
	case lease.ReasonTimeout, lease.ReasonRefused, lease.ReasonReadOnly, lease.ReasonLoading, lease.ReasonCluster:
		s.reload(ctx)
	}
	return e
}
