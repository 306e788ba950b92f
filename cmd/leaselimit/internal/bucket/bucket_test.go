package bucket

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// place is a part of the shared server that a test has for itself.
type place struct {
	t      *testing.T
	prefix string
	rdb    *redis.Client
}

func newPlace(t *testing.T) *place {
	return &place{t: t, prefix: redistest.Prefix(t), rdb: redistest.Client(t)}
}

func (p *place) store() *redisbucket.Store {
	return redisbucket.New(p.rdb, redisbucket.WithPrefix(p.prefix))
}

func (p *place) limiter(cfg leaselimit.Config) *leaselimit.Limiter {
	p.t.Helper()
	cfg.StoreTimeout = 10 * time.Second // a machine that is busy is no failed store
	lim, err := leaselimit.New(p.store(), cfg)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, lim.Close(context.Background())) })
	return lim
}

func (p *place) run(args ...string) (status int, stdout, stderr string) {
	p.t.Helper()
	flags := []string{args[0], "-redis", redistest.Addr(p.t), "-prefix", p.prefix}
	return run(p.t, append(flags, args[1:]...)...)
}

// words runs a command that is to succeed.
func (p *place) words(args ...string) string {
	p.t.Helper()
	status, stdout, stderr := p.run(args...)
	require.Equal(p.t, cli.ExitOK, status, stderr)
	require.Empty(p.t, stderr)
	return stdout
}

func (p *place) object(name string, args ...string) map[string]any {
	p.t.Helper()
	var o map[string]any
	require.NoError(p.t, json.Unmarshal([]byte(p.words(append([]string{name, "-json"}, args...)...)), &o))
	return o
}

func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := cli.Program{Name: "leaselimit", Commands: []cli.Command{InspectCommand, ResetCommand}}
	status = p.Run(t.Context(), args, cli.Streams{Out: &out, Err: &errs})
	return status, out.String(), errs.String()
}

func TestRoundTrip(t *testing.T) {
	p := newPlace(t)
	require.Equal(t, "Tenant acme, class default\n  key         "+p.prefix+":{acme}:default\n  level       no record: the bucket is full\n",
		p.words("inspect", "acme"))
	require.Equal(t, false, p.object("inspect", "acme")["exists"])

	// No refill, so that nothing depends on time.
	lim := p.limiter(leaselimit.Config{Limits: quota.Fixed(quota.Limit{Capacity: 100}), LeaseSize: 25})
	for range 12 {
		d, err := lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}

	o := p.object("inspect", "acme")
	require.Equal(t, p.prefix+":{acme}:default", o["key"])
	require.Equal(t, true, o["exists"])
	require.EqualValues(t, 100, o["capacity"])
	require.EqualValues(t, 10, o["budget"])
	require.EqualValues(t, 30_000, o["tau_ms"])
	require.EqualValues(t, 0, o["rate_per_ms"])
	require.Equal(t, o["tokens"], o["level"], "nothing is refilled")
	require.Positive(t, o["leased_out"])
	require.Less(t, o["level"], 100.0)
	require.Positive(t, o["ttl_ms"])
	require.Positive(t, o["epoch_ms"])
	require.EqualValues(t, 0, o["retry_after_ms"])

	words := p.words("inspect", "acme")
	for _, want := range []string{
		" of 100 tokens now; a call can pass\n", " to all replicas together\n",
		"100, no refill, overshoot budget 10, leases of 30s\n", " tokens, ", " ago\n", "in 7",
	} {
		require.Contains(t, words, want)
	}

	before := p.words("inspect", "acme")
	require.Equal(t, "Tenant other, class default: no record, the bucket was full.\n", p.words("reset", "other"))
	require.Equal(t, strings.Fields(before)[:12], strings.Fields(p.words("inspect", "acme"))[:12], "no other bucket is touched")

	// A reset leaves the leases where they are.
	reset := p.words("reset", "acme")
	require.Contains(t, reset, "leased out and stay with their replicas.")
	require.LessOrEqual(t, p.object("inspect", "acme")["level"], 100.0)

	require.NoError(t, lim.Close(t.Context()))
	o = p.object("reset", "acme")
	require.Equal(t, true, o["existed"])
}

// Whatever a tenant is called, the commands find the bucket that a limiter uses.
func TestNamesLeadToTheLimitersBucket(t *testing.T) {
	for _, tenant := range []string{"acme", "-acme", "a b", "{x}", "a:b", "ä\x00\n", strings.Repeat("long", 100), strings.Repeat("x", 200)} {
		p := newPlace(t)
		lim := p.limiter(leaselimit.Config{Limits: quota.Fixed(quota.PerSecond(1, 10)), Class: "export"})
		_, err := lim.AllowN(t.Context(), tenant, 7)
		require.NoError(t, err)
		o := p.object("inspect", "-class", "export", "--", tenant)
		require.Equal(t, true, o["exists"], "%q", tenant)
		require.Equal(t, p.store().RedisKey(lease.Key{Tenant: lease.TenantName(tenant), Class: "export"}), o["key"])
		require.Less(t, o["level"], 10.0)
	}
}

func TestDebt(t *testing.T) {
	p := newPlace(t)
	key := lease.Key{Tenant: "t", Class: "default"}
	terms := lease.Terms{Limit: quota.PerMinute(1, 10), Budget: 1, Share: 10, TTL: time.Hour}
	_, err := p.store().Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: terms, Min: 10, Need: 10})
	require.NoError(t, err)
	grant, err := p.store().Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: terms, Want: 4, Horizon: 10 * time.Minute})
	require.NoError(t, err)
	require.EqualValues(t, 4, grant.Surplus)
	words := p.words("inspect", "t")
	require.Contains(t, words, "of 10 tokens now, debt of future-dated leases; a call can pass in ")
	require.Contains(t, words, "4 tokens to all replicas together")
	require.Contains(t, words, "10 at 1/1m0s, overshoot budget 1, leases of 1h0m0s")
}

// A plain script of another language keeps two fields, and no terms.
func TestPlainRecord(t *testing.T) {
	p := newPlace(t)
	key := p.store().RedisKey(lease.Key{Tenant: "t", Class: "default"})
	require.NoError(t, p.rdb.HSet(t.Context(), key, "tokens", "3.5", "last_refill", "1700000000000").Err())
	words := p.words("inspect", "t")
	require.Contains(t, words, "not known: the terms are not stored, or broken")
	require.Contains(t, words, "3.5 tokens, ")
	require.Contains(t, words, "never, unlike every bucket that leaselimit wrote")
	o := p.object("inspect", "t")
	require.EqualValues(t, 3.5, o["tokens"])
	require.NotContains(t, o, "level")
	require.NotContains(t, o, "ttl_ms")

	require.Contains(t, p.words("reset", "t"), "reset, the bucket is full.")
	require.Zero(t, p.rdb.Exists(t.Context(), key).Val())
}

func TestBrokenRecord(t *testing.T) {
	p := newPlace(t)
	key := p.store().RedisKey(lease.Key{Tenant: "t", Class: "default"})
	require.NoError(t, p.rdb.HSet(t.Context(), key, "tokens", "nan", "capacity", "10", "rate", "-1", "tau", "x", "budget", "1e400").Err())
	require.Contains(t, p.words("inspect", "t"), "broken: tokens or last_refill is no number")

	require.NoError(t, p.rdb.HSet(t.Context(), key, "tokens", "5", "capacity", "1e300", "rate", "1e300", "tau", "1e300", "budget", "-7",
		"epoch", "1e300", "last_refill", "-1e300").Err())
	require.Contains(t, p.words("inspect", "t"), "not known: the terms are not stored, or broken")
}

func TestWrongType(t *testing.T) {
	p := newPlace(t)
	key := p.store().RedisKey(lease.Key{Tenant: "t", Class: "default"})
	require.NoError(t, p.rdb.Set(t.Context(), key, "hello", 0).Err())
	status, stdout, stderr := p.run("inspect", "t")
	require.Equal(t, cli.ExitFailed, status)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "holds a string and no bucket; 'leaselimit reset' deletes it")
	require.Contains(t, p.words("reset", "t"), "reset, the bucket is full.")
	require.Contains(t, p.words("inspect", "t"), "no record")
}

func TestURLs(t *testing.T) {
	status, stdout, stderr := run(t, "inspect", "t", "-redis", "redis://"+redistest.Addr(t)+"/0", "-prefix", redistest.Prefix(t))
	require.Equal(t, cli.ExitOK, status, stderr)
	require.Contains(t, stdout, "no record")
}

func TestPassword(t *testing.T) {
	server := redistest.Start(t, redistest.WithConfig("requirepass", "secret"))
	status, stdout, stderr := run(t, "inspect", "t", "-redis", "redis://:secret@"+server.Addr())
	require.Equal(t, cli.ExitOK, status, stderr)
	require.Contains(t, stdout, "no record")

	status, _, stderr = run(t, "inspect", "t", "-redis", server.Addr())
	require.Equal(t, cli.ExitFailed, status)
	require.Contains(t, stderr, "NOAUTH")
}

func TestNobodyThere(t *testing.T) {
	for _, name := range []string{"inspect", "reset"} {
		status, stdout, stderr := run(t, name, "t", "-redis", "127.0.0.1:1")
		require.Equal(t, cli.ExitFailed, status)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "refused")
	}
}

func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "TENANT is missing"},
		{[]string{""}, "TENANT is empty"},
		{[]string{"a", "b"}, "one TENANT, please, not 2"},
		{[]string{"a", "-class", ""}, "-class is empty"},
		{[]string{"a", "-redis", "localhost"}, "-redis"},
		{[]string{"a", "-nonsense"}, "-nonsense"},
	} {
		for _, name := range []string{"inspect", "reset"} {
			status, stdout, stderr := run(t, append([]string{name}, tt.args...)...)
			require.Equal(t, cli.ExitUsage, status, tt.args)
			require.Empty(t, stdout)
			require.Contains(t, stderr, tt.want)
		}
	}
}

func TestLimitOf(t *testing.T) {
	for _, l := range []quota.Limit{
		quota.PerSecond(1000, 5), quota.PerSecond(3, 5), quota.PerMinute(7, 5), quota.PerMinute(1, 5),
		{Capacity: 5, Refill: 1, Per: time.Hour},
		{Capacity: 5, Refill: 1_000_000, Per: 24 * time.Hour},
		{Capacity: quota.MaxTokens, Refill: quota.MaxTokens, Per: time.Second},
		{Capacity: 5},
		{Capacity: 5, Refill: 3, Per: 7 * time.Second},
		{Capacity: 5, Refill: 1, Per: 100 * 24 * time.Hour},
		{Capacity: 5, Refill: 11, Per: 13 * time.Millisecond},
		{Capacity: 5, Refill: 1 << 20, Per: 3},
	} {
		got := limitOf(float64(l.Capacity), l.PerMillisecond())
		require.NoError(t, got.Validate(), l.String())
		require.Equal(t, l.Capacity, got.Capacity)
		require.InDelta(t, 1, (got.PerMillisecond()+1e-300)/(l.PerMillisecond()+1e-300), 1e-8, "%v of %v", got, l)
	}
	require.Equal(t, "5 at 3/1s", limitOf(5, quota.PerSecond(3, 5).PerMillisecond()).String())
	require.Equal(t, "5 at 7/1m0s", limitOf(5, quota.PerMinute(7, 5).PerMillisecond()).String())
}
