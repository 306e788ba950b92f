package main

import (
	"bytes"
	"testing"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestRun(t *testing.T) {
	for name, store := range map[string]lease.Store{
		"memory": membucket.New(),
		"redis":  redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(redistest.Prefix(t))),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, run(t.Context(), store, &out))
			for _, want := range []string{
				"nobody: Unauthenticated\n", `call 1: OK, ratelimit ["default";r=2;t=1]`, ": ResourceExhausted, ratelimit", "retry_delay:",
				"polite call: OK after ", "stream, charged by the message: ResourceExhausted, again in ",
			} {
				require.Contains(t, out.String(), want)
			}
		})
	}
}
