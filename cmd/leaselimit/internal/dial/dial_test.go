package dial

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	client := func(addr string) redis.UniversalClient {
		t.Helper()
		server, err := Parse(addr)
		require.NoError(t, err)
		c := server()
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	one := client("localhost:6379").(*redis.Client).Options()
	require.Equal(t, "localhost:6379", one.Addr)
	require.True(t, one.ContextTimeoutEnabled)
	require.Equal(t, 1, one.DialerRetries)

	one = client("rediss://user:secret@example.org:7000/3").(*redis.Client).Options()
	require.Equal(t, "example.org:7000", one.Addr)
	require.Equal(t, []any{"user", "secret", 3}, []any{one.Username, one.Password, one.DB})
	require.NotNil(t, one.TLSConfig)
	require.True(t, one.ContextTimeoutEnabled)
	require.Equal(t, 1, one.DialerRetries)

	many := client("a:1, b:2,c:3").(*redis.ClusterClient).Options()
	require.Equal(t, []string{"a:1", "b:2", "c:3"}, many.Addrs)
	require.True(t, many.ContextTimeoutEnabled)
	require.Equal(t, 1, many.DialerRetries)

	many = client("redis://user:secret@a:1?addr=b:2&dialer_retries=3").(*redis.ClusterClient).Options()
	require.Equal(t, 3, many.DialerRetries)
	require.ElementsMatch(t, []string{"a:1", "b:2"}, many.Addrs)
	require.Equal(t, "secret", many.Password)
}

func TestParseRefuses(t *testing.T) {
	for _, addr := range []string{
		"", "localhost", "a:1,b", "a:1,", "http://localhost:6379", "redis://user:secret@local host:6379", "redis://user:secret@h:x/0",
		"redis://user:secret@h:1/db", "redis://user:secret@h:1?nonsense=1", "redis://user:secret@h:1?addr=b:2&nonsense=1",
	} {
		_, err := Parse(addr)
		require.Error(t, err, addr)
		require.NotContains(t, err.Error(), "secret", "a password is not for logs")
	}
}
