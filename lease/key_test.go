package lease_test

import (
	"strings"
	"testing"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/stretchr/testify/assert"
)

func TestTenantName(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, same := range []string{"", "a", "\x00", "\x00sha256-of", strings.Repeat("x", 256), "{a}:b", "\xff\x00 ü"} {
		assert.Equal(t, same, lease.TenantName(same))
	}
	seen := map[string]string{}
	for _, tenant := range []string{
		long, long + "y", strings.Repeat("y", 257), strings.Repeat("x", 1<<20), "\x00sha256-of:", "\x00sha256-of:abc",
		lease.TenantName(long), // whoever calls himself like the hash of another is not the other
	} {
		name := lease.TenantName(tenant)
		assert.LessOrEqual(t, len(name), 256)
		assert.NotEqual(t, tenant, name)
		assert.Empty(t, seen[name], "two tenants under one name")
		seen[name] = tenant
		assert.Equal(t, name, lease.TenantName(tenant))
	}
}
