package deptest_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The outside world, by the first part of the import path that tells it apart.
const (
	module     = "github.com/leaselimit/leaselimit"
	xsync      = "golang.org/x/sync"
	redis      = "github.com/redis/go-redis"
	prometheus = "github.com/prometheus"
	grpc       = "google.golang.org/grpc"
	pgx        = "github.com/jackc/pgx"
	httpsfv    = "github.com/dunglas/httpsfv"
	genproto   = "google.golang.org/genproto"
	protobuf   = "google.golang.org/protobuf"
	envoy      = "github.com/envoyproxy"
)

// allowed is what a package may import beside the standard library: packages of this module by their path in it ("." is the
// root), others by a part of their path from the start. Its own tests may import more. A package that is not listed fails
// the test: whoever adds one decides here what it may know.
var allowed = map[string][]string{
	"quota":       {},
	"localbucket": {},
	"precheck":    {},
	"scripts":     {},

	"lease":         {"localbucket", "precheck", "quota", xsync},
	"internal/wire": {"lease", "quota"},
	"membucket":     {"internal/wire", "lease", "quota", "scripts"},
	"redisbucket":   {"internal/wire", "lease", "quota", "scripts", redis},

	".": {"lease", "localbucket", "precheck", "quota"},

	"internal/edgelog":    {"."},
	"internal/patience":   {},
	"internal/ratefields": {".", "quota", httpsfv},
	"internal/pace":       {"internal/patience", "internal/ratefields"},

	// Adapters import the root, never the reverse.
	"httplimit": {".", "internal/edgelog", "internal/pace", "internal/patience", "internal/ratefields", "lease", "quota"},
	"grpclimit": {
		".", "internal/edgelog", "internal/pace", "internal/patience", "internal/ratefields", "lease", "quota",
		grpc, genproto + "/googleapis/rpc/errdetails", protobuf + "/protoadapt", protobuf + "/types/known/durationpb",
	},
	"metrics":        {".", "lease", "quota", prometheus},
	"debugpage":      {".", "lease"},
	"quota/sqlquota": {"quota"},
	"quota/pgnotify": {pgx},
}

// free are folders of programs and of help for tests: they may import what they like, and nothing else in the module may
// import them.
var free = []string{
	"internal/chart",
	"bench", "cmd", "examples", "internal/adversary", "internal/chaos", "internal/childproc", "internal/dbtest", "internal/deptest",
	"internal/fakeclock", "internal/faultproxy", "internal/fleet", "internal/redistest", "lease/storetest",
}

// never is what must not be reached from a package, however indirectly.
var never = map[string][]string{
	".":         {redis, prometheus, grpc, genproto, protobuf, envoy, "github.com/stretchr/testify", "pgregory.net/rapid"},
	"membucket": {redis, prometheus, grpc, genproto, protobuf, envoy, "github.com/stretchr/testify", "pgregory.net/rapid"},
	"redisbucket": {
		prometheus, grpc, genproto, protobuf, envoy, "github.com/stretchr/testify", "pgregory.net/rapid",
	},
	"httplimit": {redis, prometheus, grpc, genproto, protobuf, envoy},
	"grpclimit": {redis, prometheus, envoy},
	"metrics":   {redis, grpc, genproto, envoy},
	"debugpage": {redis, prometheus, grpc, genproto, protobuf, envoy},

	"quota/sqlquota": {redis, prometheus, grpc, pgx},
}

type listed struct {
	ImportPath string
	Imports    []string // of the package itself, without its tests
	Deps       []string // of those, too, and so on
}

func TestImportDirections(t *testing.T) {
	for name, p := range list(t) {
		if isFree(name) {
			continue
		}
		may, known := allowed[name]
		if !assert.True(t, known, "%s is new: say in allowed or free what it may import", name) {
			continue
		}
		for _, imported := range p.Imports {
			assert.True(t, isStandard(imported) || slices.ContainsFunc(may, matches(imported)),
				"%s must not import %s", name, imported)
		}
	}
}

func TestHeavyDependenciesAreNotReached(t *testing.T) {
	packages := list(t)
	for name, heavy := range never {
		for _, dep := range packages[name].Deps {
			assert.False(t, slices.ContainsFunc(heavy, matches(dep)), "%s must not reach %s", name, dep)
		}
	}
}

// A test of the tests: what they are made of tells directions apart.
func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		rule, imported string
		want           bool
	}{
		{".", module, true},
		{".", module + "/lease", false},
		{"lease", module + "/lease", true},
		{"lease", module + "/lease/storetest", false},
		{"quota", module + "/quota/sqlquota", false},
		{redis, "github.com/redis/go-redis/v9", true},
		{redis, "github.com/redis/go-redis-fork", false},
		{xsync, "golang.org/x/sync/singleflight", true},
		{grpc, "google.golang.org/grpc", true},
	} {
		assert.Equal(t, tt.want, matches(tt.imported)(tt.rule), "%s, %s", tt.rule, tt.imported)
	}
	assert.True(t, isStandard("math/rand/v2"))
	assert.False(t, isStandard(module))
	assert.True(t, isFree("cmd/leaselimit/internal/demo"))
	assert.False(t, isFree("lease"))
}

// list is what the go command says of all packages of the module, by their path in it. A package that does not compile is for
// other tests to report.
func list(t *testing.T) map[string]listed {
	t.Helper()
	// The go command takes the result of a test from its cache unless something changed that the test itself looked at.
	require.NoError(t, filepath.WalkDir("../..", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == ".git" {
			return filepath.SkipDir
		}
		return err
	}))

	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,Deps", module+"/...")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		require.NoError(t, err, "go list: %s", exit.Stderr)
	}
	require.NoError(t, err)
	packages := make(map[string]listed)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		packages[inModule(p.ImportPath)] = p
	}
	require.Subset(t, slices.Collect(maps.Keys(packages)), []string{".", "lease", "membucket", "quota", "redisbucket"})
	return packages
}

// inModule is an import path as the rules write it.
func inModule(importPath string) string {
	if importPath == module {
		return "."
	}
	return cmp.Or(strings.TrimPrefix(importPath, module+"/"), importPath)
}

// matches reports whether a rule is about the imported package.
func matches(imported string) func(rule string) bool {
	return func(rule string) bool {
		if strings.HasPrefix(imported, module) {
			return inModule(imported) == rule
		}
		return imported == rule || strings.HasPrefix(imported, rule+"/")
	}
}

func isFree(name string) bool {
	return slices.ContainsFunc(free, func(f string) bool { return name == f || strings.HasPrefix(name, f+"/") })
}

// isStandard goes by the rule that the go command itself goes by: only a path from outside has a dot in its first element.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(path.Clean(importPath), "/")
	return !strings.Contains(first, ".")
}
