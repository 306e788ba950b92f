package scripts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sources are the files, without their comments, by name.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	require.Len(t, files, 7)
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		all[f] = regexp.MustCompile(`--.*`).ReplaceAllString(string(text), "")
	}
	return all
}

func TestEveryScriptStatesItsContract(t *testing.T) {
	files, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		header, _, _ := strings.Cut(string(text), "\n\nlocal ")
		for _, part := range []string{"-- KEYS ", "-- ARGV ", "-- Reply ", "-- Invariant"} {
			if f != "bucket.lua" || part == "-- Invariant" {
				assert.Contains(t, header, part, f)
			}
		}
	}
}

// Cluster proxies and other servers refuse scripts that touch a key which is not in KEYS.
func TestCK3_EveryKeyIsInKEYS(t *testing.T) {
	call := regexp.MustCompile(`redis\.\w+\(([^,)]*)(?:, *([^,)]*))?`)
	load := regexp.MustCompile(`[^.\w]load\(([^,)]*)`)
	for name, text := range sources(t) {
		for _, m := range call.FindAllStringSubmatch(text, -1) {
			if m[1] == "'TIME'" {
				continue
			}
			assert.Contains(t, []string{"key", "b.key", "KEYS[1]"}, m[2], "%s: %s", name, m[0])
		}
		for _, m := range load.FindAllStringSubmatch(text, -1) {
			assert.Contains(t, []string{"key", "KEYS[1]"}, m[1], "%s: %s", name, m[0])
		}
		assert.NotContains(t, text, "..", "%s builds a text", name)
		assert.NotContains(t, text, "pcall", name)
	}
	take := sources(t)["take.lua"]
	assert.Contains(t, take, "for i, key in ipairs(KEYS) do", "take's key is one of KEYS")
}

// Work is constant for each key: no loop but over KEYS, the fields of a bucket and two epochs.
func TestNoScriptHasAnOpenLoop(t *testing.T) {
	known := []string{
		"for i = 1, 9 do", "for _ = 1, 2 do", "while cur + prev > 0 do", // two rounds, each of which empties one
		"for i, key in ipairs(KEYS) do", "for _, key in ipairs(KEYS) do", "for _, b in ipairs(distinct) do",
	}
	for name, text := range sources(t) {
		for _, m := range regexp.MustCompile(`(?:for|while|repeat)\b.*`).FindAllString(text, -1) {
			ok := slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(m, k) })
			assert.True(t, ok, "%s: %s", name, m)
		}
	}
}

// A draw is the same few commands at any time, however many came before, and the bucket does not grow.
func TestPF4_ADrawIsAFewCommands(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	s := redisbucket.New(rdb)
	lim := lease.Terms{Limit: quota.PerSecond(1_000_000, 1_000_000), Budget: 10, Share: 1000, TTL: time.Second}
	draw := func() {
		_, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 1, Want: 10})
		require.NoError(t, err)
	}
	draw()
	const draws = 5000
	require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
	for range draws {
		draw()
	}
	stats := rdb.Info(t.Context(), "commandstats").Val()
	for _, name := range []string{"evalsha", "time", "hmget", "hset", "pexpire"} {
		assert.Regexp(t, `cmdstat_`+name+`:calls=5000,`, stats)
	}
	assert.LessOrEqual(t, strings.Count(stats, "cmdstat_"), 5+3, "and no others but those of connections: %s", stats)
	assert.EqualValues(t, 9, rdb.HLen(t.Context(), s.RedisKey(key)).Val())
}
