package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// A Key names one shared bucket.
type Key struct {
	Tenant string // as TenantName gives it, not empty
	Class  string // letters, digits, '-', '_', '.'
}

const (
	maxTenantName = 256              // bytes; longer names are hashed
	hashedName    = "\x00sha256-of:" // what a hash that stands for a longer name begins with
)

// TenantName is the name under which a tenant is known to stores and kept in memory: tenant itself if it has at most 256
// bytes, otherwise a hash of it, so that nobody can fill memory with names. It must be applied once.
func TenantName(tenant string) string {
	if len(tenant) <= maxTenantName && (tenant == "" || tenant[0] != hashedName[0]) {
		return tenant
	}
	return hashed(tenant)
}

// hashed is TenantName of those that may have to be hashed.
func hashed(tenant string) string {
	if len(tenant) <= maxTenantName && !strings.HasPrefix(tenant, hashedName) {
		return tenant
	}
	sum := sha256.Sum256([]byte(tenant))
	return hashedName + hex.EncodeToString(sum[:])
}
