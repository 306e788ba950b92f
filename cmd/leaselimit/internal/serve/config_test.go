package serve

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
)

const goodConfig = `
classes:
  default: {capacity: 5, refill: 1, per: 1s}
rules:
  - {entries: [{key: tenant}], tenant: tenant, class: default}
`

// Errors name the field and the bound.
func TestConfigErrors(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"capacity: 5, ", "", "classes.default: capacity is missing"},
		{"refill: 1, ", "", "classes.default: refill is missing (0 never refills)"},
		{"capacity: 5", "capacity: -1", "classes.default: quota: invalid limit: Capacity is -1, must be 0 to"},
		{"capacity: 5", "capacity: five", "line 3: cannot unmarshal"},
		{"per: 1s", "per: 60", `line 3: "60" is no duration such as 30s`},
		{"per: 1s", "per: 0s", "classes.default: quota: invalid limit: Per is 0s, must be positive where Refill is"},
		{"per: 1s", "per: 1s, unlimited: true", "classes.default: unlimited excludes capacity, refill and per"},
		{"per: 1s", "per: 1s, burst: 3", "line 3: field burst not found"},
		{"per: 1s", "per: 1s, on_failure: never", `classes.default: on_failure is "never", must be local, open, closed or error`},
		{"per: 1s", "per: 1s, max_overshoot: 0", "classes.default: max_overshoot is 0, set exact in its place"},
		{"per: 1s", "per: 1s, max_overshoot: 2", "classes.default: leaselimit: Config.MaxOvershoot is 2, must be"},
		{"per: 1s", "per: 1s, lease_ttl: 1ms", "classes.default: leaselimit: Config.LeaseTTL is 1ms, must be"},
		{"per: 1s", "per: 1s, tenants: {acme: {capacity: 1}}", "classes.default.tenants.acme: refill is missing"},
		{"per: 1s", `per: 1s, tenants: {"": {capacity: 1, refill: 0}}`, "classes.default.tenants has an empty name"},
		{"default: {", `"a b": {`, `rules[0].class is "default", must be one of classes`},
		{"class: default", "class: other", `rules[0].class is "other", must be one of classes`},
		{"tenant: tenant", "tenant: user", `rules[0].tenant is "user", must be the key of an entry`},
		{", tenant: tenant", "", `rules[0].tenant is "", must be the key of an entry`},
		{"[{key: tenant}]", "[{key: tenant}, {key: tenant}]", `rules[0].tenant is "tenant", the key of two entries`},
		{"[{key: tenant}]", "[{key: tenant}, {value: x}]", "rules[0].entries[1].key is empty"},
		{"[{key: tenant}]", "[]", "rules[0].entries is empty, must have one or more"},
		{"\nclasses", "unmatched: maybe\nclasses", `unmatched is "maybe", must be allow or refuse`},
		{"\nclasses", "domains: x\nclasses", "field domains not found"},
		{goodConfig, "", "the file is empty"},
		{goodConfig, "{}", "classes is empty, must have one or more\nrules is empty, must have one or more"},
		{goodConfig, goodConfig + "---\n{}\n", "more than one document"},
		{goodConfig, "{", "did not find expected node content"},
	} {
		text := strings.Replace(goodConfig, tt.from, tt.to, 1)
		require.NotEqual(t, goodConfig, text, "%q is not there", tt.from)
		c, err := parse([]byte(text))
		if err == nil {
			_, err = newLimiters(c, membucket.New(), nil)
		}
		require.ErrorContains(t, err, tt.want, "%s", text)
	}
	c, err := parse([]byte(goodConfig))
	require.NoError(t, err)
	_, err = newLimiters(c, membucket.New(), nil)
	require.NoError(t, err)
}

// The config that docs/serve.md shows is good, and does what it says.
func TestConfigOfTheDocs(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/serve.md")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(doc), "## The config\n\n```yaml\n")
	text, _, found := strings.Cut(after, "```")
	require.True(t, found)
	c, err := parse([]byte(text))
	require.NoError(t, err)
	_, err = newLimiters(c, membucket.New(), nil)
	require.NoError(t, err)
	class, tenant, ok := c.find("edge", descriptor("path", "/export", "tenant", "acme"))
	require.Equal(t, []any{"export", "acme", true}, []any{class, tenant, ok})
	class, tenant, ok = c.find("else", descriptor("tenant", "acme"))
	require.Equal(t, []any{"default", "acme", true}, []any{class, tenant, ok})
	_, _, ok = c.find("else", descriptor("path", "/export", "tenant", "acme"))
	require.False(t, ok)
}

func TestConfigIsJSONToo(t *testing.T) {
	c, err := parse([]byte(`{"classes": {"x": {"capacity": 5, "refill": 1, "per": "1m30s"}},
		"rules": [{"entries": [{"key": "t", "value": ""}, {"key": "u"}], "tenant": "u", "class": "x"}]}`))
	require.NoError(t, err)
	q, err := c.Classes["x"].quota()
	require.NoError(t, err)
	require.Equal(t, quota.Limit{Capacity: 5, Refill: 1, Per: 90 * time.Second}, q)
	require.Empty(t, *c.Rules[0].Entries[0].Value, "a value that has to be empty")
	require.Nil(t, c.Rules[0].Entries[1].Value)
}

func TestCurrentLimit(t *testing.T) {
	const (
		second = rls.RateLimitResponse_RateLimit_SECOND
		minute = rls.RateLimitResponse_RateLimit_MINUTE
		hour   = rls.RateLimitResponse_RateLimit_HOUR
		day    = rls.RateLimitResponse_RateLimit_DAY
	)
	for _, tt := range []struct {
		refill int64
		per    time.Duration
		n      uint32 // 0: cannot be said
		unit   rls.RateLimitResponse_RateLimit_Unit
		times  uint32
	}{
		{10, time.Second, 10, second, 0},
		{10, 100 * time.Millisecond, 100, second, 0},
		{10, 300 * time.Millisecond, 0, 0, 0},
		{10, 1500 * time.Millisecond, 0, 0, 0},
		{10, 90 * time.Second, 10, second, 90},
		{10, time.Minute, 10, minute, 0},
		{10, 2 * time.Hour, 10, hour, 2},
		{10, 48 * time.Hour, 10, day, 2},
		{math.MaxUint32, time.Second, math.MaxUint32, second, 0},
		{math.MaxUint32 + 1, time.Second, 0, 0, 0},
		{math.MaxUint32, time.Nanosecond, 0, 0, 0},
		{0, time.Second, 0, 0, 0},
	} {
		l := currentLimit("x", quota.Limit{Capacity: 1, Refill: tt.refill, Per: tt.per})
		require.Equal(t, tt.n, l.GetRequestsPerUnit(), "%+v", tt)
		require.Equal(t, tt.unit, l.GetUnit(), "%+v", tt)
		require.Equal(t, tt.times, l.GetUnitMultiplier().GetValue(), "%+v", tt)
	}
	require.Nil(t, currentLimit("x", quota.Unlimited))
}
