package membucket

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The model and the scripts, in Redis' own Lua, do the same: random steps with the same clock give the same answers and leave
// the same state, to the bit.
func TestModelIsTheScripts(t *testing.T) {
	p := newPair(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		if err := p.replay(drawRun(t)); err != nil {
			t.Fatal(err)
		}
	})
}

// The comparison above is worth something only if it sees a fault.
func TestTT5_ABrokenScriptIsSeen(t *testing.T) {
	for name, m := range map[string]struct{ from, to string }{
		"debits before flooring": {"b.tokens = b.tokens - waiters", "b.tokens = b.tokens - math.min(need, math.max(0, b.tokens))"},
		"drops part-tokens":      {"b.last = to", "b.last, b.tokens = to, math.floor(b.tokens)"},
		"rounds up":              {"local EPSILON = 1e-9", "local EPSILON = 0.01"},
		"caps before the refill": {"b.tokens = math.min(top, b.tokens + (to - b.last) * b.rate)", "b.tokens = math.min(top, b.tokens) + (to - b.last) * b.rate"},
		"ignores what is out":    {"b.capacity + b.budget - b.cur - b.prev)\nend", "b.capacity + b.budget)\nend"},
		"R1 reports first":       {"local b = load(KEYS[1], now, terms(1))\nsettle", "redis.call('HINCRBYFLOAT', KEYS[1], 'out_cur', -tonumber(ARGV[12]))\nlocal b = load(KEYS[1], now, terms(1))\nsettle"},
		"R2 lazy borders":        {"fill(b, b.epoch + b.tau)", ""},
		"R3 any epoch":           {"elseif epoch == b.epoch - b.tau then", "else"},
		"R3 another's name":      {"b.tau, b.cur, b.prev = t.tau, b.cur + b.prev, 0", "b.tau = t.tau"},
		"R3 below zero":          {"taken = math.min(b.cur, n)", "taken = n"},
		"uncounted":              {"b.cur = b.cur + surplus", ""},
		"new rate for the past":  {"field(f[3], rate, rate)", "rate"},
		"rewinds never":          {"last = last and last <= now and last or now", "last = last or now"},
		"terms stored once":      {"if b.same then", "if b.exists then"},
		"same but for the rate":  {" and f[3] == ARGV[t.at + 1]", ""},
		"same but for capacity":  {"f[4] == ARGV[t.at] and ", ""},
		"same but for budget":    {" and f[5] == ARGV[t.at + 2]", ""},
		"same but for tau":       {" and f[7] == ARGV[t.at + 3]", ""},
		"short expiry":           {"+ 2 * b.tau + 1000", "+ 1000"},
		"expiry in seconds":      {"redis.call('PEXPIRE', b.key, ttl(b))", "redis.call('PEXPIRE', b.key, math.ceil(ttl(b) / 1000))"},
		"writes on refusal":      {"if waiters > 0 or surplus > 0 or b.dirty or", "if true or"},
		"14 digits":              {"local tokens = b.tokens - (b.last - whole) * b.rate", "local tokens = tostring(b.tokens - (b.last - whole) * b.rate)"},
		"take of a part":         {"if allowed == 1 then b.tokens = math.max(-b.capacity", "if b.wait == 0 then b.tokens = math.max(-b.capacity"},
		"take without a report":  {"settle(b, tonumber(ARGV[at + 9]), tonumber(ARGV[at + 10]))", ""},
		"debt without a bound":   {"math.max(-b.capacity, b.tokens - b.cost)", "b.tokens - b.cost"},
		"what is owed refuses":   {"if b.owe == 0 then b.wait = retry(b, b.cost) end", "b.wait = retry(b, b.cost)"},
		"mints on return":        {"credit(b, unspent + waiters)", "credit(b, tonumber(ARGV[7]) + waiters)"},
		"reset forgets leases":   {"if out(b) > 0 then\n      b.tokens", "if false then\n      b.tokens"},
		"truncated replies":      {"string.format('%.17g', v)", "tostring(math.floor(v))"},
	} {
		t.Run(name, func(t *testing.T) {
			var changed atomic.Bool
			p := newPair(t, func(script string) string {
				out := strings.ReplaceAll(script, m.from, m.to)
				if out != script {
					changed.Store(true)
				}
				return out
			})
			var err error
			runs := rapid.Custom(drawRun)
			for seed := 0; err == nil && seed < 1000; seed++ {
				err = p.replay(runs.Example(seed))
			}
			assert.True(t, changed.Load(), "the script has no such line any more")
			require.Error(t, err, "nobody saw it")
		})
	}
}
