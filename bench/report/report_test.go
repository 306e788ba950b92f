package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const output = `go: go1.26
cpu: A Processor
BenchmarkMemoryAllow/peer=leaselimit/tenants=1/callers=1-2   	 100	 10 ns/op	 0 B/op	 0 allocs/op
BenchmarkMemoryAllow/peer=leaselimit/tenants=1/callers=1-2   	 100	 30 ns/op	 0 B/op	 0 allocs/op
BenchmarkMemoryAllow/peer=leaselimit/tenants=1/callers=1-2   	 100	 9000 ns/op	 0 B/op	 0 allocs/op
BenchmarkMemoryAllow/peer=xtime/tenants=1/callers=2-2   	 100	 1234 ns/op	 0 B/op	 0 allocs/op
redis: 7.0.15
BenchmarkRedisAllow/peer=leaselimit/tenants=1/callers=64-2   	 100	 100 ns/op
BenchmarkRedisAllow/peer=throttled/tenants=1/callers=64-2   	 100	 50000 ns/op	 0.5 errors/op
BenchmarkRedisAllow/peer=redis_rate/tenants=1/callers=64-2   	 100	 25000 ns/op
BenchmarkSteady/rate=1000/peer=leaselimit-2   	 100	 1000000 ns/op	 0.00125 store-calls/admitted	 650.0 p50-ns	 2500000 p99-ns
BenchmarkOutage/rate=1000/tenants=100-2   	 1	 20000 healthy-p99-ns	 30000 open-p99-ns	 1.500 open/healthy-p99	 250000000 recovery-ns
BenchmarkHeap/state=empty/site=all-2   	 1	 760.5 B/tenant
PASS
ok  	github.com/leaselimit/leaselimit/bench	13.244s
`

func TestPage(t *testing.T) {
	name := filepath.Join(t.TempDir(), "bench.txt")
	require.NoError(t, os.WriteFile(name, []byte(output), 0o600))
	require.NoError(t, write(name, "../ratios.json"))
	page, err := os.ReadFile(filepath.Join(filepath.Dir(name), "README.md"))
	require.NoError(t, err)
	for _, line := range []string{
		"| cpu | A Processor |",
		"| redis | 7.0.15 |",
		"| golang.org/x/time | v",
		"| peer | tenants 1, callers 1 | tenants 1, callers 2 |",
		"| leaselimit | 30 ns |  |", // the median
		"| xtime |  | 1.23 µs |",
		"Times of redis_rate over those of leaselimit: 250 (tenants 1, callers 64).",
		"| throttled | 0.5 |",
		"| case | p50 | p99 | store-calls/admitted |",
		"| rate 1000, peer leaselimit | 650 ns | 2.50 ms | 0.0013 |",
		"| case | healthy-p99 | open-p99 | open/healthy-p99 | recovery |",
		"| rate 1000, tenants 100 | 20 µs | 30 µs | 1.50 | 250 ms |",
		"| site | state empty |",
		"| all | 760 |",
		"| allow/handle | ",
		"![Allowed, from memory](memoryallow.svg)",
	} {
		assert.Contains(t, string(page), line)
	}
	chart, err := os.ReadFile(filepath.Join(filepath.Dir(name), "memoryallow.svg"))
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(chart), "<?xml"))
	assert.Contains(t, string(chart), "leaselimit")
}

func TestFormat(t *testing.T) {
	for unit, want := range map[string]string{"ns/op": "1.50 ms", "p99-ns": "1.50 ms", "B/tenant": "1500000"} {
		assert.Equal(t, want, format(1.5e6, unit), unit)
	}
	assert.Equal(t, "0.25 ns", duration(0.25))
	assert.Equal(t, "42.2 ns", duration(42.19))
	assert.Equal(t, "3 s", duration(3e9))
}
