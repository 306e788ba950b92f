package leaselimit_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file hold what README.md says.

func TestReadmeProgram(t *testing.T) {
	program, redis, edges := readmeCode(t)

	t.Run("IsTheExample", func(t *testing.T) {
		example, err := os.ReadFile("example_test.go")
		require.NoError(t, err)
		assert.Equal(t, body(t, string(example), "Example"), body(t, program, "main"))
	})

	t.Run("PrintsWhatItSays", func(t *testing.T) {
		says := regexp.MustCompile(`(?s)// Output:\n(.*?)\n}`).FindStringSubmatch(program)
		require.NotNil(t, says, "no // Output: in the program")
		want := regexp.MustCompile(`(?m)^\t// ?`).ReplaceAllString(says[1], "")
		got, err := goCommand(t, program, "run").Output()
		require.NoError(t, err)
		assert.Equal(t, want, strings.TrimSpace(string(got)))
	})

	t.Run("BuildsWithRedis", func(t *testing.T) {
		const memory = "\tstore := membucket.New()\n"
		const imports = "\t\"github.com/leaselimit/leaselimit/membucket\"\n"
		require.Contains(t, program, memory)
		require.Contains(t, program, imports)
		overRedis := strings.NewReplacer(memory, redis, imports,
			"\"github.com/redis/go-redis/v9\"\n\"github.com/leaselimit/leaselimit/redisbucket\"\n").Replace(program)
		out, err := goCommand(t, overRedis, "build", "-o", os.DevNull).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})

	t.Run("BuildsTheEdges", func(t *testing.T) {
		out, err := goCommand(t, fmt.Sprintf(edgesOf, edges), "build", "-o", os.DevNull).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

// edgesOf stands around what README.md shows of HTTP and gRPC.
const edgesOf = `package main

import (
	"context"
	"net/http"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/grpclimit"
	"github.com/leaselimit/leaselimit/httplimit"
)

func use(any, any, any) {}

func main() {
	var lim *leaselimit.Limiter
	tenant := func(*http.Request) (string, error) { return "", nil }
	tenantOfCall := func(context.Context, string) (string, error) { return "", nil }
	%s
	use(limit, unary, client)
}
`

// readmeCode is the Go code of README.md: the program, what takes the place of its store, and what is around handlers.
func readmeCode(t *testing.T) (program, redis, edges string) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, blocks, 3, "a new block: say above how it is compiled")
	return blocks[0][1], blocks[1][1], blocks[2][1]
}

// body is the text of a function, formatted and without its comments.
func body(t *testing.T, source, function string) string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", source, 0)
	require.NoError(t, err)
	i := slices.IndexFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Name.Name == function
	})
	require.GreaterOrEqual(t, i, 0, "no func %s", function)
	var text bytes.Buffer
	require.NoError(t, format.Node(&text, fset, file.Decls[i].(*ast.FuncDecl).Body))
	return regexp.MustCompile(`\n\n+`).ReplaceAllString(text.String(), "\n")
}

// goCommand is the go command on a program that is compiled as a part of this module.
func goCommand(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	return exec.CommandContext(t.Context(), "go", append(args, file)...)
}

// replica is a limiter in a test bubble.
func replica(t *testing.T, store lease.Store, cfg leaselimit.Config) *leaselimit.Limiter {
	t.Helper()
	lim, err := leaselimit.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lim.Close(context.Background())) })
	return lim
}

func allow(t *testing.T, lim *leaselimit.Limiter) bool {
	t.Helper()
	d, err := lim.Allow(t.Context(), "acme")
	require.NoError(t, err)
	return d.Allowed
}

func TestReadme_TenAtTenASecondPassesTwentyInTheFirstSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := replica(t, membucket.New(), leaselimit.Config{Limits: quota.Fixed(quota.PerSecond(10, 10)), Exact: true})
		admitted := 0
		for range 1050 { // the twentieth comes at 1000 ms, and is asked for a few ms later
			if allow(t, lim) {
				admitted++
			}
			time.Sleep(time.Millisecond)
		}
		assert.Equal(t, 20, admitted)
	})
}

// The price: what of a burst on one replica is refused while another holds as much as there may be leased.
func TestReadme_ABurstIsRefusedWhatOthersHold(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cfg    leaselimit.Config
		passes int
	}{
		{"by default", leaselimit.Config{}, 850},
		{"exact", leaselimit.Config{Exact: true}, 750},
		{"with a share not above the budget", leaselimit.Config{LeaseShare: 0.10}, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.cfg.Limits = quota.Fixed(quota.PerSecond(1000, 1000))
				store := membucket.New()
				holder := tt.cfg
				holder.Replicas, holder.LeaseSize = 1, 1000 // as much as it can get
				other := replica(t, store, holder)
				require.True(t, allow(t, other))
				held := other.Stats().TokensHeld
				require.Equal(t, other.Bound("acme").Share, held)

				time.Sleep(2 * time.Second) // the bucket fills as far as it may
				synctest.Wait()
				lim, passed := replica(t, store, tt.cfg), 0
				for range 1000 {
					if allow(t, lim) {
						passed++
					}
				}
				assert.Equal(t, tt.passes, passed)
			})
		})
	}
}

// mortal is the store as a replica sees it that may crash: then nothing it sends arrives any more.
type mortal struct {
	lease.Store

	dead atomic.Bool
}

var errDead = &lease.StoreError{Op: "return", Reason: lease.ReasonRefused, Err: context.Canceled}

func (m *mortal) Return(ctx context.Context, items []lease.Return) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Store.Return(ctx, items)
}

func TestReadme_TokensOfACrashedReplicaComeBackWithinTwiceLeaseTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := membucket.New()
		cfg := leaselimit.Config{
			Limits: quota.Fixed(quota.PerSecond(1000, 1000)), Exact: true, Replicas: 1, LeaseSize: 250, LeaseTTL: 10 * time.Second,
		}
		crashed := &mortal{Store: store}
		require.True(t, allow(t, replica(t, crashed, cfg)))
		crashed.dead.Store(true)

		lim := replica(t, store, leaselimit.Config{Limits: cfg.Limits, Exact: true, LeaseTTL: cfg.LeaseTTL})
		remaining := func() int64 {
			d, err := lim.Peek(t.Context(), "acme")
			require.NoError(t, err)
			return d.Remaining
		}
		time.Sleep(5 * time.Second)
		assert.Equal(t, int64(750), remaining(), "what is out is not refilled")
		time.Sleep(2*cfg.LeaseTTL - 5*time.Second)
		time.Sleep(250 * time.Millisecond) // to refill it
		assert.Equal(t, int64(1000), remaining())
	})
}

// hung is a store that does not answer.
type hung struct{ lease.Store }

func (hung) Acquire(ctx context.Context, _ lease.AcquireRequest) (lease.Grant, error) {
	<-ctx.Done()
	return lease.Grant{}, ctx.Err()
}

func TestReadme_NobodyWaitsLongerThanStoreTimeout(t *testing.T) {
	for policy, admitted := range map[leaselimit.FailurePolicy]int{
		leaselimit.FailLocal: 25, leaselimit.FailOpen: 1000, leaselimit.FailClosed: 0,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := replica(t, hung{}, leaselimit.Config{
					Limits: quota.Fixed(quota.Limit{Capacity: 100}), OnFailure: policy, StoreTimeout: 20 * time.Millisecond,
					Logger: slog.New(slog.DiscardHandler),
				})
				n := 0
				for range 1000 {
					start := time.Now()
					d, err := lim.Allow(t.Context(), "acme")
					require.NoError(t, err)
					require.LessOrEqual(t, time.Since(start), 20*time.Millisecond)
					require.True(t, d.Degraded())
					if d.Allowed {
						n++
					}
				}
				assert.Equal(t, admitted, n)
			})
		})
	}
}
