// Command report makes a page with tables and charts of the output of go test -bench. Run it in the folder of the bench module:
//
//	go run ./report results/bench.txt
//
// writes README.md and *.svg beside the file. Figures are medians of the repetitions.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/leaselimit/leaselimit/bench/ratio"
)

func main() {
	ratios := flag.String("ratios", "ratios.json", "the committed ratios")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: report [flags] bench.txt")
		os.Exit(2)
	}
	if err := write(flag.Arg(0), *ratios); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// A section is one benchmark.
type section struct {
	bench, title, note string

	corner string   // pivot by this parameter, and show unit
	unit   string   //
	units  []string // or else show these, a row for each case
	chart  bool     // in units: of those that are times
	beside string   // say how many times as long as leaselimit this peer takes
}

var sections = []section{
	{
		bench: "MemoryAllow", title: "Allowed, from memory", corner: "peer", unit: "ns/op", chart: true,
		note: "leaselimit has a lease in hand. The others limit one process.",
	},
	{
		bench: "MemoryRefuse", title: "Refused, from memory", corner: "peer", unit: "ns/op", chart: true,
		note: "leaselimit knows the tenant to be empty.",
	},
	{
		bench: "RedisAllow", title: "Allowed, over Redis on loopback", corner: "peer", unit: "ns/op", chart: true, beside: "redis_rate",
		note: "leaselimit draws leases as it goes; leaselimit-waiting may not lease ahead, so that every call waits. ns/op of many " +
			"callers is the time between two calls, not what one of them waits.",
	},
	{
		bench: "RedisRefuse", title: "Refused, over Redis on loopback", corner: "peer", unit: "ns/op", chart: true, beside: "redis_rate",
		note: "Every peer asks Redis, also to hear no again.",
	},
	{
		bench: "Draws", title: "A draw of another tenant with each call", corner: "peer", unit: "ns/op",
		note: "All at once against one at a time is what sending them together saves: on loopback the processors are the limit, at 1 ms the trips.",
	},
	{
		bench: "RoundTrip", title: "Allowed, over a slower network", corner: "peer", unit: "ns/op", chart: true,
		note: "Replies come later by rtt. ping is a bare PING: what the delay really was.",
	},
	{
		bench: "RedisOverload", title: "Ten times the limit and more",
		units: []string{"ns/op", "store-calls/op"},
	},
	{
		bench: "Steady", title: "Steady traffic below the limit, open loop", chart: true,
		units: []string{"p50-ns", "p99-ns", "p99.9-ns", "store-calls/admitted", "%waited", "late-p99-ns"},
		note: "Times are of one call, from when it was due. late is the driver's own lateness, which is not in them: a caller that " +
			"sleeps is woken late.",
	},
	{
		bench: "Outage", title: "Redis killed and started again under steady traffic",
		units: []string{"healthy-p50-ns", "healthy-p99-ns", "open-p50-ns", "open-p99-ns", "open/healthy-p99", "recovery-ns"},
		note: "Times of one call: with Redis, and when the breaker is open and no lease is left. recovery is how long it takes the " +
			"limiter to know that Redis answers again.",
	},
	{
		bench: "Heap", title: "Heap of one tenant", corner: "site", unit: "B/tenant",
		note: "Bytes, by who allocated them.",
	},
	{
		bench: "Eviction", title: "More tenants than there is room for",
		units: []string{
			"resident-p50-ns", "resident-p99-ns", "stranger-p50-ns", "stranger-p99-ns", "MB-when-full", "MB-at-the-end",
		},
		note: "Calls of a tenant that stays, and of strangers that come once, which make others go where there is no more room.",
	},
}

func write(name, committed string) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	r, err := read(in, name)
	if err != nil {
		return err
	}
	versions, err := versionsOf(modules)
	if err != nil {
		return err
	}
	f, err := ratio.Load(committed)
	if err != nil {
		return err
	}
	dir := filepath.Dir(name)
	page, err := r.page(dir, filepath.Base(name), versions)
	if err != nil {
		return err
	}
	page.WriteString("## Hot paths beside x/time/rate\n\nTimes of ours over times of theirs, measured in turns (`make bench-check`).\n\n")
	ratios(page, f)
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(strings.TrimRight(page.String(), "\n")+"\n"), 0o644)
}

// page is all but the ratios; its charts are written to dir.
func (r run) page(dir, raw string, versions []string) (*strings.Builder, error) {
	w := &strings.Builder{}
	fmt.Fprintf(w, "# Results\n\nMedians; every repetition is in [%s](%[1]s). Written by `go run ./report`.\n\n", raw)
	w.WriteString("| | |\n|---|---|\n")
	for _, key := range []string{"date", "commit", "command", "cpu", "cores", "kernel", "go", "redis"} {
		if v := r.config[key]; v != "" {
			fmt.Fprintf(w, "| %s | %s |\n", key, v)
		}
	}
	for _, v := range versions {
		path, version, _ := strings.Cut(v, " ")
		fmt.Fprintf(w, "| %s | %s |\n", path, version)
	}
	w.WriteString("\n")
	for _, s := range sections {
		var results []result
		for _, res := range r.results {
			if res.bench == s.bench {
				results = append(results, res)
			}
		}
		if len(results) == 0 {
			continue
		}
		fmt.Fprintf(w, "## %s\n\n", s.title)
		if s.note != "" {
			fmt.Fprintf(w, "%s\n\n", s.note)
		}
		if err := s.write(w, results, dir); err != nil {
			return nil, fmt.Errorf("%s: %w", s.bench, err)
		}
	}
	return w, nil
}

func (s section) write(w *strings.Builder, results []result, dir string) error {
	t, drawn := pivot(results, s.corner, s.unit), pivot(results, s.corner, s.unit)
	if s.units != nil {
		t = byUnit(results, s.units)
		drawn = byUnit(results, []string{"p50-ns", "p99-ns", "p99.9-ns"})
	}
	t.markdown(w, s.unit)
	if s.beside != "" {
		t.compare(w, "leaselimit", s.beside)
	}
	if failed := pivot(results, s.corner, "errors/op"); len(failed.rows) > 0 {
		w.WriteString("Calls that failed, as a share:\n\n")
		failed.markdown(w, "errors/op")
	}
	if !s.chart {
		return nil
	}
	file := strings.ToLower(s.bench) + ".svg"
	fmt.Fprintf(w, "![%s](%s)\n\n", s.title, file)
	return chart(drawn, s.title, filepath.Join(dir, file))
}

// modules are the peers, and what they speak to Redis with.
var modules = []string{
	"golang.org/x/time", "go.uber.org/ratelimit", "github.com/sethvargo/go-limiter", "github.com/gubernator-io/gubernator/v2",
	"github.com/go-redis/redis_rate/v10", "github.com/throttled/throttled/v2", "github.com/ulule/limiter/v3",
	"github.com/redis/go-redis/v9", "github.com/redis/rueidis",
}

// versionsOf are lines of path and version.
func versionsOf(modules []string) ([]string, error) {
	out, err := exec.Command("go", append([]string{"list", "-m"}, modules...)...).Output() //nolint:noctx // ends by itself
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}
