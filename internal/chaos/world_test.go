package chaos_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	replicas     = 4
	storeTimeout = 500 * time.Millisecond // of a hasty world
	patience     = time.Minute            // for what must come
	capacity     = 100_000
	scarce       = 300 // of every other tenant: used up in a run
)

// pace is how long a lease lasts, and a replica waits for the store. In a hasty world a busy machine may make an answer late, and
// then tokens are lost with it; in a calm one it does not, so that every token is accounted for.
type pace struct{ ttl, timeout time.Duration }

var (
	hasty = pace{3 * time.Second, storeTimeout}
	calm  = pace{30 * time.Second, 10 * time.Second}
)

// world is four replicas under load on one Redis, each with a client of its own. Buckets have no refill, so that tokens can be
// counted.
type world struct {
	pace
	store   *redisbucket.Store // for looking, on a client that no fault touches but the server's own
	lims    []*leaselimit.Limiter
	tenants []string
	log     *lines
	stop    chan struct{}
	work    sync.WaitGroup

	mu struct {
		sync.Mutex
		seen
	}
}

// seen is what callers saw.
type seen struct {
	calls, admitted, refused, degraded, failed int64
	worst                                      time.Duration
	tokens                                     map[string]int64 // admitted by leases and by the store
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func limitOf(tenant string) quota.Limit {
	if strings.HasSuffix(tenant, "scarce") {
		return quota.Limit{Capacity: scarce}
	}
	return quota.Limit{Capacity: capacity}
}

var limits = quota.SourceFunc(func(_ context.Context, tenant string) (quota.Limit, error) { return limitOf(tenant), nil })

// start puts four replicas on what connect connects to. look is a connection for the test.
func start(t *testing.T, prefix string, p pace, look redis.UniversalClient, connect func() redis.UniversalClient) *world {
	t.Helper()
	w := &world{
		pace: p, store: redisbucket.New(look, redisbucket.WithPrefix(prefix)), log: &lines{}, stop: make(chan struct{}),
	}
	w.mu.tokens = map[string]int64{}
	for i := range 4 {
		w.tenants = append(w.tenants, fmt.Sprintf("tenant-%d", i), fmt.Sprintf("tenant-%d-scarce", i))
	}
	for range replicas {
		lim, err := leaselimit.New(redisbucket.New(connect(), redisbucket.WithPrefix(prefix)), leaselimit.Config{
			Limits: limits, LeaseTTL: p.ttl, StoreTimeout: p.timeout,
			Logger: slog.New(slog.NewTextHandler(w.log, nil)),
		})
		require.NoError(t, err)
		w.lims = append(w.lims, lim)
	}
	for i, lim := range w.lims {
		for caller := range 2 {
			w.work.Go(func() { w.call(lim, i+caller) })
		}
	}
	t.Cleanup(w.end)
	w.until(t, "warm", func() bool {
		for _, lim := range w.lims {
			if lim.Stats().AllowedStore == 0 {
				return false
			}
		}
		return true
	})
	return w
}

// call calls until the end.
func (w *world) call(lim *leaselimit.Limiter, from int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := from; ; n++ {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		tenant, cost := w.tenants[n%len(w.tenants)], int64(1+n%3)
		begin := time.Now()
		d, err := lim.AllowN(context.Background(), tenant, cost)
		took := time.Since(begin)
		w.mu.Lock()
		w.mu.calls++
		w.mu.worst = max(w.mu.worst, took)
		switch {
		case err != nil:
			w.mu.failed++
		case d.Degraded():
			w.mu.degraded++
		case d.Allowed:
			w.mu.admitted++
			w.mu.tokens[tenant] += cost
		default:
			w.mu.refused++
		}
		w.mu.Unlock()
	}
}

// halt ends the calls.
func (w *world) halt() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.work.Wait()
}

func (w *world) end() {
	w.halt()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, lim := range w.lims {
		_ = lim.Close(ctx)
	}
}

func (w *world) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, 5*time.Millisecond, what)
}

// recovered waits until every bucket can be read, and every replica is answered, again. The nodes of a Cluster come back one by one.
func (w *world) recovered(t *testing.T) {
	t.Helper()
	begin := time.Now()
	w.until(t, "recovered", func() bool {
		for _, tenant := range w.tenants {
			if _, err := w.peek(t, tenant); err != nil {
				return false
			}
		}
		for i, lim := range w.lims {
			// A new tenant has to be asked for.
			d, err := lim.Allow(context.Background(), fmt.Sprintf("fresh-%d-%d", i, time.Now().UnixNano()))
			if s := lim.Stats(); err != nil || d.Degraded() || s.BreakerOpen || s.Degraded {
				return false
			}
		}
		return true
	})
	t.Logf("recovered in %v", time.Since(begin).Round(time.Millisecond))
}

func (w *world) peek(t *testing.T, tenant string) (lease.State, error) {
	t.Helper()
	b := w.lims[0].Bound(tenant)
	return w.store.Peek(t.Context(), lease.Key{Tenant: tenant, Class: "default"},
		lease.Terms{Limit: b.Limit, Budget: b.Tokens, Share: b.Share, TTL: w.ttl})
}

func (w *world) sum() leaselimit.Stats {
	var s leaselimit.Stats
	for _, lim := range w.lims {
		s = s.Plus(lim.Stats())
	}
	return s
}

// check ends the run and looks at the books. losses is how often the store may have lost what it knew; exact says that no answer
// was lost, so that no token may be.
func (w *world) check(t *testing.T, losses int64, exact bool) {
	t.Helper()
	w.halt()
	w.recovered(t) // also from calls that were under way when it was seen to have
	w.end()
	s := w.sum()
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("calls %d: admitted %d, refused %d, degraded %d, failed %d, worst wait %v",
		w.mu.calls, w.mu.admitted, w.mu.refused, w.mu.degraded, w.mu.failed, w.mu.worst.Round(time.Millisecond))
	t.Logf("draws %d, failed %d, late %d, returns %d; failures %v; down %v", s.Draws, s.DrawFailures, s.LateDraws, s.Returns, nonzero(s.Failures),
		s.DegradedFor.Round(time.Millisecond))
	assert.Zero(t, w.mu.failed, "a store that fails is no error of a call")

	assert.Zero(t, s.TokensHeld)
	assert.Equal(t, s.TokensGranted, s.TokensSpent+s.TokensReturned+s.TokensLost+s.TokensStranded, "%+v", s)
	missing := int64(0)
	for _, tenant := range w.tenants {
		limit := limitOf(tenant)
		st, err := w.peek(t, tenant)
		require.NoError(t, err)
		level, spent := int64(st.Level), w.mu.tokens[tenant]
		assert.LessOrEqual(t, level+spent, limit.Capacity+losses*(limit.Capacity+w.lims[0].Bound(tenant).Share), "%s: %d left, %d spent", tenant, level, spent)
		if losses == 0 {
			missing += limit.Capacity - level - spent
		}
	}
	t.Logf("tokens lost %d, of them stranded %d, lost on the way back %d", missing, s.TokensStranded, s.TokensLost)
	if exact {
		assert.Equal(t, s.TokensStranded+s.TokensLost, missing, "no answer was lost, and so no token")
	}

	text := w.log.String()
	away, back := strings.Count(text, "does not answer"), strings.Count(text, "answers again")
	assert.Equal(t, away, back, "a line for each change, and all are well:\n%s", text)
	assert.NotContains(t, text, "tenant-", "tenants are not for logs")
	t.Logf("%d lines: away %d, back %d", strings.Count(text, "\n"), away, back)
}

func nonzero(m map[lease.Reason]int64) map[lease.Reason]int64 {
	some := map[lease.Reason]int64{}
	for r, n := range m {
		if n > 0 {
			some[r] = n
		}
	}
	return some
}
