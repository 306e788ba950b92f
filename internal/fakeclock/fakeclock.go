// Package fakeclock gives the Lua scripts of a test a clock that stands still until the test moves it, on real Redis servers
// and without any hook in what is shipped.
//
// A [Clock] is a hook of a go-redis client. It sends every script that asks for the TIME with that call replaced, so the
// arithmetic runs in Redis' own Lua, and only the time is not Redis' own. Expiries go on running in real time. A script that is sent
// through the hook is always sent in full, so what depends on EVALSHA cannot be tested with it.
package fakeclock

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/scripts"
	"github.com/redis/go-redis/v9"
)

// askTime is how the scripts ask for the time. What replaces it takes it from behind their own arguments.
const (
	askTime  = "redis.call('TIME')"
	takeTime = "{ARGV[#ARGV - 1], ARGV[#ARGV]}"
)

// A Clock is a time that scripts see. It is safe for concurrent use.
type Clock struct {
	mutate func(script string) string
	texts  map[string]string // the scripts of this module by their hash

	mu  sync.Mutex
	now time.Duration // since 1970
}

var _ redis.Hook = (*Clock)(nil)

// New returns a clock that stands at micros µs since 1970.
func New(micros int64) *Clock { return Mutant(micros, nil) }

// Mutant is New for tests of tests: each script is changed by mutate before it is sent.
func Mutant(micros int64, mutate func(script string) string) *Clock {
	c := &Clock{mutate: mutate, texts: make(map[string]string), now: time.Duration(micros) * time.Microsecond}
	for _, text := range []string{scripts.Acquire, scripts.Take, scripts.Return, scripts.Peek, scripts.Reset} {
		c.texts[redis.NewScript(text).Hash()] = text
	}
	return c
}

// Advance moves the clock, backwards too.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
}

// Micros is what the clock shows, in µs since 1970.
func (c *Clock) Micros() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.Microseconds()
}

// Millis is what a script makes of it.
func (c *Clock) Millis() float64 {
	us := c.Micros()
	return wire.Clock(us/1e6, us%1e6)
}

// DialHook changes nothing.
func (c *Clock) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook sends scripts with the time of the clock.
func (c *Clock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		as := c.translate(ctx, cmd)
		err := next(ctx, as)
		settle(cmd, as, err)
		return err
	}
}

// ProcessPipelineHook does the same in pipelines.
func (c *Clock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		as := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			as[i] = c.translate(ctx, cmd)
		}
		err := next(ctx, as)
		for i, cmd := range cmds {
			settle(cmd, as[i], as[i].Err())
		}
		return err
	}
}

// translate is the command that is sent in place of cmd: cmd itself if it is no script that asks for the time.
func (c *Clock) translate(ctx context.Context, cmd redis.Cmder) redis.Cmder {
	if name := cmd.Name(); name != "eval" && name != "evalsha" {
		return cmd
	}
	args := cmd.Args()
	text := fmt.Sprint(args[1])
	if known, ok := c.texts[text]; ok {
		text = known
	}
	if !strings.Contains(text, askTime) {
		return cmd
	}
	if c.mutate != nil {
		text = c.mutate(text)
	}
	us := c.Micros()
	all := append([]any{"eval", strings.ReplaceAll(text, askTime, takeTime)}, args[2:]...)
	as := redis.NewCmd(ctx, append(all, us/1e6, us%1e6)...)
	as.SetFirstKeyPos(3)
	return as
}

// settle gives cmd the result of what was sent in its place.
func settle(cmd, as redis.Cmder, err error) {
	if cmd == as {
		return
	}
	cmd.(interface{ SetVal(any) }).SetVal(as.(*redis.Cmd).Val())
	cmd.SetErr(err)
}
