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
	return appendReports(args, r.Reports)
}

func appendReports(args []any, reports [2]lease.Report) []any {
	for _, r := range reports {
		args = append(args, r.Epoch, r.Tokens)
	}
	return args
}

func returnArgs(r lease.Return) []any {
	return append(appendTerms(make([]any, 0, 9), r.Terms), r.Waiters, r.Epoch, r.Unspent, r.Spent, float(r.At))
}

func takeArgs(charges []lease.Charge) []any {
	args := make([]any, 0, 10*len(charges))
	for _, c := range charges {
		args = append(appendTerms(args, c.Terms), c.Cost, c.Owe)
		args = appendReports(args, c.Reports)
	}
	return args
}

func appendTerms(args []any, t lease.Terms) []any {
	w := wire.TermsOf(t)
	return append(args, t.Limit.Capacity, float(w.Rate), t.Budget, float(w.Tau))
}

// float writes a number such that Lua reads the same number.
func float(v float64) string { return strconv.FormatFloat(v, 'g', 17, 64) }
