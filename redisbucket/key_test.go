package redisbucket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// offline is a store for the names of its keys.
func offline(t testing.TB, opts ...redisbucket.Option) *redisbucket.Store {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	return redisbucket.New(rdb, opts...)
}

func TestRedisKey(t *testing.T) {
	s := offline(t)
	for tenant, want := range map[string]string{
		"acme":                   "acme",
		"a-b_c.D9@e":             "a-b_c.D9@e",
		"a:b":                    "a%3Ab",
		"}{":                     "%7D%7B",
		"100%":                   "100%25",
		"ü\x00":                  "%C3%BC%00",
		strings.Repeat("a", 128): strings.Repeat("a", 128),
		strings.Repeat("a", 129): "%sha256.c12cb024a2e5551cca0e08fce8f1c5e314555cc3fef6329ee994a3db752166ae",
	} {
		assert.Equal(t, "rl:{"+want+"}:default", s.RedisKey(lease.Key{Tenant: tenant, Class: "default"}))
	}
	assert.Regexp(t, `^rl:\{%sha256\.[0-9a-f]{64}\}:default$`,
		s.RedisKey(lease.Key{Tenant: strings.Repeat("%", 43), Class: "default"}), "43 bytes of which 129 would become")

	for prefix, want := range map[string]string{"app:rl/eu": "app:rl/eu", "{x}%": "%7Bx%7D%25", "": ""} {
		assert.Equal(t, want+":{acme}:export",
			offline(t, redisbucket.WithPrefix(prefix)).RedisKey(lease.Key{Tenant: "acme", Class: "export"}))
	}
}

// hashTag is the part of a key that decides its slot, by the rule of Redis Cluster.
func hashTag(key string) string {
	_, after, ok := strings.Cut(key, "{")
	if !ok {
		return key
	}
	tag, _, ok := strings.Cut(after, "}")
	if !ok || tag == "" {
		return key
	}
	return tag
}

// Whatever the tenants and classes are: two buckets have two keys, a tenant has one slot and only one hash tag that could be
// taken for it, and keys are short and printable.
func FuzzKey(f *testing.F) {
	for _, tenant := range []string{
		"acme", "a:b", "{a}", "a}", "}", "{", "{}", "%", "%41", "A", "\x00", "\xff", "ü", " ", "\r\n",
		strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("{", 43), "%sha256.", strings.Repeat("y", 1<<10),
	} {
		f.Add(tenant, "default", "b", "export")
		f.Add(tenant, "default", tenant+"}", "default")
		f.Add(tenant+":c", "d", tenant, "c:d")
	}
	s := offline(f)
	f.Fuzz(func(t *testing.T, tenantA, classA, tenantB, classB string) {
		if tenantA == "" || tenantB == "" || classA == "" || classB == "" {
			return // which no store accepts
		}
		a, b := lease.Key{Tenant: tenantA, Class: classA}, lease.Key{Tenant: tenantB, Class: classB}
		keyA, keyB := s.RedisKey(a), s.RedisKey(b)
		if (keyA == keyB) != (a == b) {
			t.Errorf("%q and %q are %q and %q", a, b, keyA, keyB)
		}
		tagA, tagB := hashTag(keyA), hashTag(keyB)
		if (tagA == tagB) != (tenantA == tenantB) {
			t.Errorf("tenants %q and %q have tags %q and %q", tenantA, tenantB, tagA, tagB)
		}
		other := s.RedisKey(lease.Key{Tenant: tenantA, Class: classB})
		if hashTag(other) != tagA {
			t.Errorf("%q and %q are in two slots", keyA, other)
		}
		for _, k := range []string{keyA, keyB} {
			if len(k) > len("rl:{}:")+2*128 {
				t.Errorf("%q has %d bytes", k, len(k))
			}
			if strings.Count(k, "{") != 1 || strings.Count(k, "}") != 1 || strings.Count(k, ":") != 2 {
				t.Errorf("%q is ambiguous", k)
			}
			if i := strings.IndexFunc(k, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
				t.Errorf("%q has byte %#x", k, k[i])
			}
		}
	})
}

func TestCK6_PartsOfAKeyAreNotAmbiguous(t *testing.T) {
	s := offline(t)
	keys := map[string]lease.Key{}
	for _, k := range []lease.Key{
		{Tenant: "a:b", Class: "c"},
		{Tenant: "a", Class: "b:c"},
		{Tenant: "a}:b", Class: "c"},
		{Tenant: "a", Class: "b}:c"},
		{Tenant: "a%3Ab", Class: "c"},
		{Tenant: "A:b", Class: "c"},
	} {
		name := s.RedisKey(k)
		assert.NotContains(t, keys, name, "%q", k)
		keys[name] = k
	}
}

func TestCK8_LimitersAreToldApartByClassOrPrefix(t *testing.T) {
	rdb := redistest.Client(t)
	prefix := redistest.Prefix(t)
	a := redisbucket.New(rdb, redisbucket.WithPrefix(prefix))
	b := redisbucket.New(rdb, redisbucket.WithPrefix(prefix+"-b"))
	lim := limited(quota.Limit{Capacity: 1})
	assert.Equal(t, int64(1), admitted(t, a, lim, 3))
	assert.Equal(t, int64(1), admitted(t, b, lim, 3), "another prefix")
	g, err := a.Acquire(t.Context(), lease.AcquireRequest{
		Key: lease.Key{Tenant: key.Tenant, Class: "export"}, Terms: lim, Min: 1, Need: 1,
	})
	require.NoError(t, err)
	assert.Equal(t, int64(1), g.Waiters, "another class")
}

// A tenant may be a secret, if it should not. The keys show it; nothing else does.
func TestCK10_ErrorsDoNotNameTheTenant(t *testing.T) {
	const secret = "Bearer-s3cr3t"
	s := offline(t)
	secretKey := lease.Key{Tenant: secret, Class: "default"}
	lim := limited(quota.PerSecond(1, 1))
	_, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: secretKey, Terms: lim, Min: 1, Need: 1})
	require.Error(t, err)
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), secret)
	_, err = s.Acquire(t.Context(), lease.AcquireRequest{Key: secretKey, Terms: lim, Min: -1, Need: 1})
	require.Error(t, err)
	assert.NotContains(t, fmt.Sprintf("%v", err), secret)
	_, err = s.Take(t.Context(), []lease.Charge{{Key: secretKey, Terms: lim, Cost: 1}, {Key: key, Terms: lim, Cost: 1}})
	require.Error(t, err)
	assert.NotContains(t, fmt.Sprintf("%v", err), secret)
}

func TestCK11_AHugeTenantHasASmallKey(t *testing.T) {
	s, _, rdb := single(t)
	huge := strings.Repeat("x", 1<<20)
	lim := limited(quota.Limit{Capacity: 1})
	for _, tenant := range []string{huge, huge + "y"} {
		k := lease.Key{Tenant: tenant, Class: "default"}
		g, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: k, Terms: lim, Min: 1, Need: 1})
		require.NoError(t, err)
		assert.Equal(t, int64(1), g.Waiters)
		assert.Less(t, len(s.RedisKey(k)), 200)
		assert.Equal(t, int64(1), rdb.Exists(t.Context(), s.RedisKey(k)).Val())
	}
}

func TestCK13_EveryOperationHasTheSameKey(t *testing.T) {
	rdb := redistest.Client(t)
	prefix := redistest.Prefix(t)
	s := redisbucket.New(rdb, redisbucket.WithPrefix(prefix))
	rec := &recorder{}
	rdb.AddHook(rec)
	lim := lease.Terms{Limit: quota.Limit{Capacity: 10}, Share: 5, TTL: limited(quota.Limit{}).TTL}
	g, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 1, Want: 4, Replicas: 1})
	require.NoError(t, err)
	require.NoError(t, s.Return(t.Context(), []lease.Return{{Key: key, Terms: lim, Epoch: g.Epoch, Unspent: g.Surplus}}))
	_, err = s.Take(t.Context(), []lease.Charge{{Key: key, Terms: lim, Cost: 1}})
	require.NoError(t, err)
	st, err := s.Peek(t.Context(), key, lim)
	require.NoError(t, err)
	assert.InDelta(t, 8, st.Level, 0)
	require.NoError(t, s.Reset(t.Context(), key))
	for _, args := range rec.sent {
		assert.Equal(t, s.RedisKey(key), args[3])
	}
	assert.Empty(t, rdb.Keys(t.Context(), prefix+"*").Val())
}

// A server that does not keep to the format, or keeps to a later one.
func TestCK9_OtherFormatsUnderTheKey(t *testing.T) {
	s, _, rdb := single(t)
	name := s.RedisKey(key)
	lim := limited(quota.PerSecond(1, 10))

	require.NoError(t, rdb.Set(t.Context(), name, "v0", 0).Err())
	_, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 1})
	assert.Equal(t, lease.ReasonWrongType, lease.ReasonOf(err), "%v", err)
	_, err = s.Peek(t.Context(), key, lim)
	assert.Equal(t, lease.ReasonWrongType, lease.ReasonOf(err), "%v", err)
	_, err = s.Take(t.Context(), []lease.Charge{{Key: key, Terms: lim, Cost: 1}})
	assert.Equal(t, lease.ReasonWrongType, lease.ReasonOf(err), "%v", err)
	err = s.Return(t.Context(), []lease.Return{{Key: key, Terms: lim, Waiters: 1}})
	assert.Equal(t, lease.ReasonWrongType, lease.ReasonOf(err), "%v", err)
	require.NoError(t, s.Reset(t.Context(), key), "which is the cure")
	assert.Equal(t, int64(10), admitted(t, s, lim, 20))

	require.NoError(t, rdb.HSet(t.Context(), name, "format", "9", "tokens2", "x").Err())
	assert.Zero(t, admitted(t, s, lim, 20), "fields of a later format are no fault")
	assert.Equal(t, "9", rdb.HGet(t.Context(), name, "format").Val())

	require.NoError(t, s.Reset(t.Context(), key))
	require.NoError(t, rdb.HSet(t.Context(), name, "tokens", "4", "last_refill", "1").Err())
	assert.Equal(t, int64(10), admitted(t, s, lim, 20), "and neither is a bucket of two fields")
}
