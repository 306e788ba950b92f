package redisbucket

import (
	"strconv"

	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/lease"
)

// The ARGV of each script, as its header says.

func acquireArgs(r lease.AcquireRequest) []any {
	args := appendTerms(make([]any, 0, 15), r.Terms)
	args = append(args, r.Terms.Share, r.Min, r.Need, r.Want, float(wire.Millis(r.Horizon)), r.Replicas, r.Held)
	for _, report := range r.Reports {
		args = append(args, report.Epoch, report.Tokens)
	}
	return args
}

func returnArgs(r lease.Return) []any {
	return append(appendTerms(make([]any, 0, 9), r.Terms), r.Waiters, r.Epoch, r.Unspent, r.Spent, float(r.At))
}

func takeArgs(charges []lease.Charge) []any {
	args := make([]any, 0, 5*len(charges))
	for _, c := range charges {
		args = append(appendTerms(args, c.Terms), c.Cost)
	}
	return args
}

func appendTerms(args []any, t lease.Terms) []any {
	w := wire.TermsOf(t)
	return append(args, t.Limit.Capacity, float(w.Rate), t.Budget, float(w.Tau))
}

// float writes a number such that Lua reads the same number.
func float(v float64) string { return strconv.FormatFloat(v, 'g', 17, 64) }
