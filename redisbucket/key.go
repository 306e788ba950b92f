package redisbucket

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/leaselimit/leaselimit/lease"
)

// The one key builder: prefix:{tenant}:class. The braces are a hash tag, so all buckets of a tenant are in one slot of a
// Cluster and different tenants are spread over all.
//
// What is between them is an injective writing of the tenant. Letters, digits and -_.@ stand as they are; every other byte
// is written as %XX, so neither a brace nor a colon of a tenant reaches the key; and what would be longer than maxPart is
// hashed, behind a mark that the writing cannot begin with, for no hex digits follow its %. Classes are written in the same way,
// which changes none that leaselimit accepts.

// maxPart is the most bytes that a tenant or a class has in a key.
const maxPart = 128

// hashMark is before the SHA-256 of a long tenant.
const hashMark = "%sha256."

const hexDigits = "0123456789ABCDEF"

// RedisKey is the key under which the bucket is stored, for tools. The hash there is described in scripts/bucket.lua.
func (s *Store) RedisKey(key lease.Key) string {
	b := make([]byte, 0, len(s.prefix)+len(key.Tenant)+len(key.Class)+4)
	b = append(b, s.prefix...)
	b = append(b, ":{"...)
	b = appendPart(b, key.Tenant)
	b = append(b, "}:"...)
	b = appendPart(b, key.Class)
	return string(b)
}

// CensusKey is the key under which the replicas of a class are counted. No tenant is written with the % that it begins with.
func (s *Store) CensusKey(class string) string {
	b := append([]byte(s.prefix), ":{%replicas}:"...)
	return string(appendPart(b, class))
}

func appendPart(b []byte, s string) []byte {
	start := len(b)
	if len(s) <= maxPart {
		b = appendEscaped(b, s, "")
		if len(b)-start <= maxPart {
			return b
		}
	}
	sum := sha256.Sum256([]byte(s))
	return hex.AppendEncode(append(b[:start], hashMark...), sum[:])
}

// appendEscaped writes s, with %XX for every byte that is no letter, no digit, none of -_.@ and none of also.
func appendEscaped(b []byte, s, also string) []byte {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == '@':
			b = append(b, c)
		case strings.IndexByte(also, c) >= 0:
			b = append(b, c)
		default:
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return b
}
