// Command check measures the hot paths beside golang.org/x/time/rate, in the same process and in turns, and fails if one of
// them has lost more than 25 % against the committed ratios, three times in a row. Run it in the folder of the bench module.
//
// What it does not do: compare times. A ratio is of a kind of machine, so measure the committed ones where the check runs.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit/bench/ratio"
)

func main() {
	name := flag.String("ratios", "ratios.json", "the committed ratios")
	update := flag.Bool("update", false, "write what is measured to the file in place of comparing")
	only := flag.String("only", "", "measure the pairs with this in their names")
	rounds := flag.Int("rounds", 101, "turns of each pair; more are steadier")
	turn := flag.Duration("turn", 5*time.Millisecond, "how long a turn takes")
	flag.Parse()
	if err := run(*name, *only, *update, ratio.Meter{Rounds: *rounds, Turn: *turn}); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func run(name, only string, update bool, m ratio.Meter) error {
	f, err := ratio.Load(name)
	if err != nil {
		return err
	}
	fmt.Printf("%-32s %-14s %6s %10s %7s\n", "pair", "beside", "ratio", "committed", "target")
	var lost []string
	for _, p := range pairs {
		if !strings.Contains(p.name, only) {
			continue
		}
		rec := f.Pairs[p.name]
		got, err := p.measure(m)
		for again := 0; err == nil && again < 2 && !update && rec.Lost(got); again++ {
			got, err = p.measure(m)
		}
		if err != nil {
			return err
		}
		fmt.Printf("%-32s %-14s %6.2f %10.2f %7.2f  %s\n", p.name, p.theirs.Name, got, rec.Ratio, rec.Target, rec.Verdict(got))
		if rec.Lost(got) {
			lost = append(lost, p.name)
		}
		rec.Ratio = math.Round(1000*got) / 1000
		f.Pairs[p.name] = rec
	}
	switch {
	case update:
		f.Machine = machine()
		return f.Save(name)
	case len(lost) > 0:
		return fmt.Errorf("lost more than 25 %% against %s: %s", name, strings.Join(lost, ", "))
	}
	return nil
}

// machine names this one by its processor.
func machine() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return fmt.Sprintf("%s, %d cores, %s", strings.TrimSpace(value), runtime.NumCPU(), runtime.Version())
		}
	}
	return fmt.Sprintf("%s, %d cores, %s", runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}
