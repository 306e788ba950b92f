package serve

import (
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// stores are the flags for each kind of store.
func stores(t *testing.T, test func(t *testing.T, flags ...string)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(t) })
	t.Run("redis", func(t *testing.T) { test(t, "-redis", redistest.Addr(t), "-prefix", redistest.Prefix(t)) })
}

func TestLimit(t *testing.T) {
	stores(t, func(t *testing.T, flags ...string) {
		g := start(t, oneClass("{capacity: 3, refill: 1, per: 1m, store_timeout: 10s}"), flags...)
		for _, left := range []uint32{2, 1, 0} {
			answer := g.ask(0, descriptor("tenant", "acme"))
			require.Equal(t, ok, answer.GetOverallCode())
			s := answer.GetStatuses()[0]
			require.Equal(t, ok, s.GetCode())
			require.Equal(t, left, s.GetLimitRemaining())
			require.Equal(t, "default", s.GetCurrentLimit().GetName())
			require.EqualValues(t, 1, s.GetCurrentLimit().GetRequestsPerUnit())
			require.Equal(t, rls.RateLimitResponse_RateLimit_MINUTE, s.GetCurrentLimit().GetUnit())
			require.Nil(t, s.GetCurrentLimit().GetUnitMultiplier())
			require.Equal(t, time.Duration(3-left)*time.Minute, s.GetDurationUntilReset().AsDuration(), "until full")
			require.Equal(t, `"default";q=3;w=180`, headersOf(answer)["ratelimit-policy"])
			require.NotContains(t, headersOf(answer), "retry-after")
		}
		answer := g.ask(0, descriptor("tenant", "acme"))
		require.Equal(t, over, answer.GetOverallCode())
		s := answer.GetStatuses()[0]
		require.Equal(t, over, s.GetCode())
		require.Zero(t, s.GetLimitRemaining())
		wait := s.GetDurationUntilReset().AsDuration()
		require.Positive(t, wait)
		require.LessOrEqual(t, wait, time.Minute)
		require.Regexp(t, `^[1-9]\d?$`, headersOf(answer)["retry-after"])
		require.Equal(t, `"default";r=0;t=`+headersOf(answer)["retry-after"], headersOf(answer)["ratelimit"])
		require.Equal(t, ok, g.ask(0, descriptor("tenant", "other")).GetOverallCode(), "another tenant has its own")
	})
}

// The gateway and a service behind it hold one limit together.
func TestGatewayAndService(t *testing.T) {
	prefix := redistest.Prefix(t)
	g := start(t, oneClass("{capacity: 10, refill: 0, exact: true, store_timeout: 10s}"),
		"-redis", redistest.Addr(t), "-prefix", prefix)
	lim, err := leaselimit.New(redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(prefix)), leaselimit.Config{
		Limits: quota.Fixed(quota.Limit{Capacity: 10}), Exact: true, StoreTimeout: 10 * time.Second,
	})
	require.NoError(t, err)
	defer lim.Close(context.Background())
	admitted := 0
	for range 40 {
		if g.ask(0, descriptor("tenant", "acme")).GetOverallCode() == ok {
			admitted++
		}
		d, err := lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		if d.Allowed {
			admitted++
		}
	}
	require.LessOrEqual(t, admitted, 10)
	require.GreaterOrEqual(t, admitted, 8, "but for what one of them holds in leases")
}

func TestCosts(t *testing.T) {
	stores(t, func(t *testing.T, flags ...string) {
		g := start(t, oneClass("{capacity: 10, refill: 0, store_timeout: 10s}"), flags...)
		require.EqualValues(t, 6, g.ask(4, descriptor("tenant", "acme")).GetStatuses()[0].GetLimitRemaining())
		own := func(n uint64) *rls.RateLimitResponse {
			d := descriptor("tenant", "acme")
			d.HitsAddend = wrapperspb.UInt64(n)
			return g.ask(100, d)
		}
		require.EqualValues(t, 4, own(2).GetStatuses()[0].GetLimitRemaining(), "a descriptor's own hits_addend wins")
		require.EqualValues(t, 4, own(0).GetStatuses()[0].GetLimitRemaining(), "0 asks, and spends nothing")
		require.Equal(t, over, own(5).GetOverallCode())
		require.Equal(t, over, own(math.MaxUint64).GetOverallCode())
		require.Equal(t, ok, own(4).GetOverallCode(), "a refusal spends nothing")
		require.Equal(t, over, own(0).GetOverallCode())
	})
}

const several = `
unmatched: refuse
classes:
  default: {capacity: 5, refill: 5, per: 1s, store_timeout: 10s}
  export:
    capacity: 1
    refill: 0
    store_timeout: 10s
    tenants:
      big: {capacity: 3, refill: 0}
      ops: {unlimited: true}
      bad: {capacity: 0, refill: 0}
rules:
  - domain: edge
    entries: [{key: path, value: /export}, {key: tenant}]
    tenant: tenant
    class: export
  - domain: other
    entries: [{key: tenant}]
    tenant: tenant
    class: export
  - entries: [{key: tenant}]
    tenant: tenant
    class: default
`

func TestDescriptors(t *testing.T) {
	g := start(t, several)
	export := func(tenant string) *rls.RateLimitResponse {
		return g.ask(0, descriptor("tenant", tenant), descriptor("path", "/export", "tenant", tenant))
	}
	answer := export("acme")
	require.Equal(t, ok, answer.GetOverallCode())
	require.Equal(t, `"default";q=5;w=1, "export";q=1`, headersOf(answer)["ratelimit-policy"])
	require.Equal(t, `"default";r=4;t=1, "export";r=0`, headersOf(answer)["ratelimit"])
	require.Nil(t, answer.GetStatuses()[1].GetCurrentLimit(), "no refill cannot be said")

	answer = export("acme")
	require.Equal(t, over, answer.GetOverallCode(), "one that is refused refuses all")
	require.Equal(t, []rls.RateLimitResponse_Code{ok, over},
		[]rls.RateLimitResponse_Code{answer.GetStatuses()[0].GetCode(), answer.GetStatuses()[1].GetCode()})
	require.NotContains(t, headersOf(answer), "retry-after", "it can never pass")
	require.Nil(t, answer.GetStatuses()[1].GetDurationUntilReset())

	for range 3 {
		require.Equal(t, ok, export("big").GetOverallCode(), "a limit of its own")
	}
	require.Equal(t, over, export("big").GetOverallCode())
	require.Equal(t, over, export("bad").GetOverallCode(), "blocked")
	for range 3 {
		answer = g.ask(0, descriptor("path", "/export", "tenant", "ops"))
		require.Equal(t, ok, answer.GetOverallCode())
		require.Empty(t, answer.GetResponseHeadersToAdd())
		require.EqualValues(t, math.MaxUint32, answer.GetStatuses()[0].GetLimitRemaining())
	}
	// The first rule that matches, in its order and of its domain.
	answer, err := g.client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
		Domain: "other", Descriptors: []*envoy.RateLimitDescriptor{descriptor("tenant", "big2")},
	})
	require.NoError(t, err)
	require.Contains(t, headersOf(answer)["ratelimit-policy"], `"export"`)

	for name, d := range map[string]*envoy.RateLimitDescriptor{
		"another key":   descriptor("user", "acme"),
		"another value": descriptor("path", "/import", "tenant", "acme"),
		"another order": descriptor("tenant", "acme", "path", "/export"),
		"more":          descriptor("tenant", "acme", "tenant", "acme"),
		"nothing":       descriptor(),
		"no tenant":     descriptor("tenant", ""),
	} {
		answer := g.ask(0, d)
		require.Equal(t, over, answer.GetOverallCode(), name)
		require.Nil(t, answer.GetStatuses()[0].GetCurrentLimit(), name)
		require.Empty(t, answer.GetResponseHeadersToAdd(), name)
	}
	_, text := g.get("/metrics")
	for _, want := range []string{
		`leaselimit_serve_descriptors_total{match="unmatched"} 5`,
		`leaselimit_serve_descriptors_total{match="no_tenant"} 1`,
		`leaselimit_serve_answers_total{code="over_limit"} 9`,
		`leaselimit_decisions_total{class="export",outcome="allowed",source="unlimited"} 3`,
	} {
		require.Contains(t, text, want)
	}
}

// A refused request spends nothing of any limit of its tenant, and the statuses say which limit refused.
func TestDescriptorsAreAllOrNothing(t *testing.T) {
	g := start(t, strings.Replace(several, "capacity: 5, refill: 5, per: 1s", "capacity: 5, refill: 0", 1))
	left := func(tenant string) uint32 {
		d := descriptor("tenant", tenant)
		d.HitsAddend = wrapperspb.UInt64(0)
		return g.ask(0, d).GetStatuses()[0].GetLimitRemaining()
	}
	codesOf := func(a *rls.RateLimitResponse) (all []rls.RateLimitResponse_Code) {
		for _, s := range a.GetStatuses() {
			all = append(all, s.GetCode())
		}
		return all
	}
	total, export := descriptor("tenant", "acme"), descriptor("path", "/export", "tenant", "acme")
	require.Equal(t, ok, g.ask(0, total, export).GetOverallCode())
	for range 5 {
		answer := g.ask(0, total, export)
		require.Equal(t, over, answer.GetOverallCode())
		require.Equal(t, []rls.RateLimitResponse_Code{ok, over}, codesOf(answer))
		require.EqualValues(t, 4, answer.GetStatuses()[0].GetLimitRemaining())
	}
	require.EqualValues(t, 4, left("acme"), "nothing is charged by a refusal")

	require.Equal(t, ok, g.ask(0, total, total).GetOverallCode())
	require.EqualValues(t, 2, left("acme"), "the same limit twice is the sum")
	require.Equal(t, []rls.RateLimitResponse_Code{over, over}, codesOf(g.ask(2, total, total)))

	// What can be seen without spending comes first.
	require.Equal(t, []rls.RateLimitResponse_Code{ok, over}, codesOf(g.ask(0, total, descriptor("tenant", ""))))
	require.EqualValues(t, 2, left("acme"))

	// Of two tenants the first has spent when the second refuses; the third is not asked.
	answer := g.ask(0, total, export, descriptor("tenant", "other"))
	require.Equal(t, []rls.RateLimitResponse_Code{ok, over, ok}, codesOf(answer))
	answer = g.ask(0, total, descriptor("path", "/export", "tenant", "bad"), descriptor("tenant", "other"))
	require.Equal(t, []rls.RateLimitResponse_Code{ok, over, ok}, codesOf(answer))
	require.Nil(t, answer.GetStatuses()[2].GetCurrentLimit())
	require.EqualValues(t, 1, left("acme"))
	require.EqualValues(t, 5, left("other"))
}

func TestUnmatchedPasses(t *testing.T) {
	g := start(t, oneClass("{capacity: 0, refill: 0}"))
	require.Equal(t, ok, g.ask(0, descriptor("user", "acme")).GetOverallCode())
	require.Equal(t, over, g.ask(0, descriptor("tenant", "acme")).GetOverallCode())
	require.Equal(t, over, g.ask(0, descriptor("user", "acme"), descriptor("tenant", "")).GetOverallCode(), "no tenant is no way out")
}

func TestInvalidRequests(t *testing.T) {
	g := start(t, oneClass("{capacity: 1, refill: 0}"))
	negative := descriptor("tenant", "acme")
	negative.IsNegativeHits = true
	for want, req := range map[string]*rls.RateLimitRequest{
		"domain is empty":      {Descriptors: []*envoy.RateLimitDescriptor{descriptor("tenant", "acme")}},
		"descriptors is empty": {Domain: "edge"},
		"descriptors[1].is_negative_hits is not supported": {
			Domain: "edge", Descriptors: []*envoy.RateLimitDescriptor{descriptor("tenant", "acme"), negative},
		},
	} {
		_, err := g.client.ShouldRateLimit(t.Context(), req)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, ok, g.ask(0, descriptor("tenant", "acme")).GetOverallCode(), "nothing was spent")
}

// What Envoy is told while Redis is away: a decision, or an error that its failure_mode_deny decides on.
func TestHP11_StoreAway(t *testing.T) {
	for _, tt := range []struct {
		policy string
		want   rls.RateLimitResponse_Code
		code   codes.Code
	}{
		{"local", ok, codes.OK},
		{"open", ok, codes.OK},
		{"closed", over, codes.OK},
		{"error", 0, codes.Unavailable},
	} {
		t.Run(tt.policy, func(t *testing.T) {
			g := start(t, oneClass("{capacity: 100, refill: 1, per: 1s, store_timeout: 10s, on_failure: "+tt.policy+"}"), "-redis", "127.0.0.1:1")
			answer, err := g.try(0, descriptor("tenant", "acme"))
			require.Equal(t, tt.code, status.Code(err))
			require.Equal(t, tt.want, answer.GetOverallCode())
			require.NotContains(t, headersOf(answer), "ratelimit", "HP22: nobody knows what remains")
			if err == nil {
				require.Nil(t, answer.GetStatuses()[0].GetDurationUntilReset())
			}
			status, _ := g.get("/healthz")
			require.Equal(t, http.StatusOK, status, "a new process could do no better")
			_, text := g.get("/metrics")
			require.Contains(t, text, `leaselimit_degraded{class="default"} 1`)
		})
	}
}

func TestShadow(t *testing.T) {
	g := start(t, oneClass("{capacity: 0, refill: 0, shadow: true}"))
	d := descriptor("tenant", "acme")
	require.Equal(t, ok, g.ask(0, d).GetOverallCode())
	d.HitsAddend = wrapperspb.UInt64(0)
	require.Equal(t, ok, g.ask(0, d).GetOverallCode())
}

// HP14: health is served however much is refused, until the end.
func TestHP14_Health(t *testing.T) {
	g := start(t, oneClass("{capacity: 0, refill: 0}"))
	health := grpc_health_v1.NewHealthClient(g.cc)
	for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService"} {
		require.Equal(t, over, g.ask(0, descriptor("tenant", "acme")).GetOverallCode())
		answer, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
	}
	status, body := g.get("/healthz")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok\n", body)
}

// A call under way when the end is asked for is answered, and then the leases are returned.
func TestDrain(t *testing.T) {
	server := redistest.Start(t)
	g := start(t, oneClass("{capacity: 100, refill: 0, store_timeout: 1m, lease_ttl: 10m}"), "-redis", server.Addr(), "-drain", "1m")
	for range 5 {
		require.Equal(t, ok, g.ask(0, descriptor("tenant", "acme")).GetOverallCode())
	}
	watches := map[string]grpc_health_v1.Health_WatchClient{}
	for service, want := range map[string]grpc_health_v1.HealthCheckResponse_ServingStatus{
		"":        grpc_health_v1.HealthCheckResponse_SERVING,
		"another": grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN,
	} {
		watch, err := grpc_health_v1.NewHealthClient(g.cc).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		health, err := watch.Recv()
		require.NoError(t, err)
		require.Equal(t, want, health.GetStatus())
		watches[service] = watch
	}

	server.Pause()
	answered := g.askSlowly("other")
	g.end()
	for service, watch := range watches { // they end, or the drain would take its minute
		health, err := watch.Recv()
		require.NoError(t, err)
		require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, health.GetStatus())
		for err == nil {
			_, err = watch.Recv()
		}
		require.Equal(t, codes.Unavailable, status.Code(err), service)
		require.ErrorContains(t, err, "draining")
	}
	require.Eventually(t, func() bool {
		status, _ := g.get("/healthz")
		return status == http.StatusServiceUnavailable
	}, time.Minute, 10*time.Millisecond)
	server.Resume()
	require.NoError(t, <-answered)
	require.Equal(t, cli.ExitOK, g.stopped(), "%s", g.stderr)
	left := server.CLI(t, "HGET", "rl:{acme}:default", "tokens")
	require.Equal(t, "95", left, "all that was not spent is back")
}

// Without time to drain, the end does not wait for calls.
func TestDrainEnds(t *testing.T) {
	server := redistest.Start(t)
	g := start(t, oneClass("{capacity: 100, refill: 0, store_timeout: 5s, lease_ttl: 10m}"), "-redis", server.Addr(), "-drain", "0s")
	server.Pause()
	defer server.Resume()
	answered := g.askSlowly("acme")
	g.end()
	require.Equal(t, codes.Unavailable, status.Code(<-answered), "the connection is closed")
	server.Resume()
	require.Equal(t, cli.ExitOK, g.stopped(), "%s", g.stderr)
}

// Of several refusals the longest wait is told, and none where one of them can never pass.
func TestRetryAfterOfSeveral(t *testing.T) {
	refused := func(wait time.Duration) leaselimit.Decision { return leaselimit.Decision{Class: "x", RetryAfter: wait} }
	for _, tt := range []struct {
		want  string
		waits []time.Duration
	}{
		{"3", []time.Duration{time.Second, 3 * time.Second, 2 * time.Second}},
		{"", []time.Duration{time.Second, leaselimit.Never, 2 * time.Second}},
		{"1", []time.Duration{time.Millisecond}},
		{"", nil},
	} {
		decisions := []leaselimit.Decision{{Class: "x", Allowed: true}}
		for _, wait := range tt.waits {
			decisions = append(decisions, refused(wait))
		}
		require.Equal(t, tt.want, headersOf(response(decisions))["retry-after"])
	}
}

// A refusal without the store has no figures, but for the wait of this process's share.
func TestHP22_RefusedWithoutTheStore(t *testing.T) {
	for policy, want := range map[leaselimit.FailurePolicy]time.Duration{leaselimit.FailLocal: 1500 * time.Millisecond, leaselimit.FailClosed: 0} {
		answer := response([]leaselimit.Decision{{
			Class: "x", Limit: quota.PerSecond(1, 5), Source: leaselimit.SourceFallback, Policy: policy, Remaining: 2,
			RetryAfter: 1500 * time.Millisecond,
		}})
		require.Equal(t, over, answer.GetOverallCode())
		require.Zero(t, answer.GetStatuses()[0].GetLimitRemaining())
		require.Equal(t, want, answer.GetStatuses()[0].GetDurationUntilReset().AsDuration())
		require.Equal(t, map[string]string{"retry-after": "2"}, headersOf(answer))
	}
}

func TestUsage(t *testing.T) {
	good := write(t, several)
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, cli.ExitUsage, "-config is missing"},
		{[]string{"-config", good, "more"}, cli.ExitUsage, `"more" is no flag`},
		{[]string{"-config", good, "-drain", "-1s"}, cli.ExitUsage, "-drain is -1s, must be 0 or more"},
		{[]string{"-config", good, "-tls-cert", good}, cli.ExitUsage, "-tls-cert and -tls-key go together"},
		{[]string{"-config", good, "-tls-key", good}, cli.ExitUsage, "-tls-cert and -tls-key go together"},
		{[]string{"-config", good, "-tls-cert", good, "-tls-key", good, "-check"}, cli.ExitFailed, "-tls-cert, -tls-key: tls: "},
		{[]string{"-config", good, "-redis", "nowhere"}, cli.ExitUsage, "-redis: "},
		{[]string{"-config", good + "x"}, cli.ExitFailed, "-config: open "},
		{[]string{"-config", good, "-listen", "127.0.0.1:x"}, cli.ExitFailed, "-listen: "},
		{[]string{"-config", good, "-listen", "127.0.0.1:0", "-http", "127.0.0.1:x"}, cli.ExitFailed, "-http: "},
		{[]string{"-config", good, "-check"}, cli.ExitOK, ""},
	} {
		var stderr lockedBuffer
		require.Equal(t, tt.status, run(t.Context(), cli.Streams{Out: io.Discard, Err: &stderr}, tt.args...), "%s", &stderr)
		require.Contains(t, stderr.String(), tt.want)
	}
}
