package tune

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// A result is what a sweep found.
type result struct {
	*settings

	Rows      []row // each choice at the place of the settings
	Elsewhere []row // the best choice at other places
	Best      row
	Fits      bool // Best keeps to -waiting
	Fitting   int  // how many rows do, and to the rest
}

// noise is by how much store calls must differ to matter. Runs of the same settings differ by a percent or two, since the library
// draws its jitter from no seed; and for a few percent no size should be fixed that adapts otherwise.
const noise = 0.05

// choose finds the row with the fewest store calls among those that keep to the budget, the loss of bursts and the waiting; if none
// keeps to the waiting, the one that adapts its size where fewest wait. Of rows as good as the best it is the one that may overshoot least, then the
// one that holds least, then the one that adapts by itself.
func (r *result) choose() {
	inside := filter(r.Rows, func(w row) bool { return w.Budget <= r.budget && w.BurstLoss <= r.burstLoss+1e-9 })
	fitting := filter(inside, func(w row) bool { return w.Waiting <= r.waiting })
	value := func(w row) float64 { return w.StoreCalls }
	r.Fitting, r.Fits = len(fitting), len(fitting) > 0
	if !r.Fits {
		// No fixed size makes up for what the capacity, the demand and the replicas do not give.
		fitting = filter(inside, func(w row) bool { return w.Size == 0 })
		value = func(w row) float64 { return w.Waiting }
	}
	least := math.Inf(1)
	for _, w := range fitting {
		least = min(least, value(w))
	}
	good := filter(fitting, func(w row) bool { return value(w) <= least*(1+noise)+0.0005 })
	r.Best = slices.MinFunc(good, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Share, b.Share), cmp.Compare(a.Size, b.Size))
	})
}

func filter(rows []row, keep func(row) bool) (kept []row) {
	for _, w := range rows {
		if keep(w) {
			kept = append(kept, w)
		}
	}
	return kept
}

// config is the best choice as Go code. What is a default is left out.
func (r *result) config() string {
	var b strings.Builder
	b.WriteString("leaselimit.Config{\n")
	c := r.Best.choice
	switch tidy(c.Budget) {
	case 0:
		b.WriteString("\tExact:        true,\n")
	case 0.1:
	default:
		fmt.Fprintf(&b, "\tMaxOvershoot: %g,\n", tidy(c.Budget))
	}
	if tidy(c.Share) != 0.25 {
		fmt.Fprintf(&b, "\tLeaseShare:   %g,\n", tidy(c.Share))
	}
	if c.Size != 0 {
		fmt.Fprintf(&b, "\tLeaseSize:    %d,\n", c.Size)
	}
	fmt.Fprintf(&b, "\tReplicas:     %d, // or leave it out, and the store counts them\n}\n", r.place.Replicas)
	return b.String()
}

// reason says why it is this one.
func (r *result) reason() string {
	w := r.Best
	bounds := fmt.Sprintf("a budget of at most %s (here %s, %s tokens), at most %s of a burst on one replica refused (here %s)",
		percent(r.budget), percent(w.Budget), tty.Count(w.Bound), percent(r.burstLoss), percent(w.BurstLoss))
	if !r.Fits {
		return fmt.Sprintf("No setting keeps the admitted calls that wait to %s. Of the %d tried, this one has the fewest with a size that "+
			"adapts, %s, within the rest of what you accept: %s. It makes %s store calls a call. Fewer replicas to a tenant, a larger capacity or a higher "+
			"-burst-loss would help.",
			percent(r.waiting), len(r.Rows), percent(w.Waiting), bounds, ratio(w.StoreCalls))
	}
	return fmt.Sprintf("Of the %d settings tried, %d keep to what you accept: %s, at most %s of the admitted calls waiting (here %s). This one "+
		"makes the fewest store calls, %s a call; of those as good as that it has the smallest budget, then the smallest share, then the "+
		"size that adapts.",
		len(r.Rows), r.Fitting, bounds, percent(r.waiting), percent(w.Waiting), ratio(w.StoreCalls))
}

// tidy is v without what floating-point sums add.
func tidy(v float64) float64 { return math.Round(v*1e9) / 1e9 }

func percent(v float64) string { return fmt.Sprintf("%.4g%%", math.Round(v*1e3)/10) }

func ratio(v float64) string { return fmt.Sprintf("%.3f", v) }
