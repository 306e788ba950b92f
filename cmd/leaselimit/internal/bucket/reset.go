package bucket

import (
	"context"
	"fmt"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// A resetResult is what a reset did.
type resetResult struct {
	Tenant    string `json:"tenant"`
	Class     string `json:"class"`
	Key       string `json:"key"`
	Existed   bool   `json:"existed"`    // without a record the bucket was full
	LeasedOut int64  `json:"leased_out"` // and stays so
}

func reset(ctx context.Context, j *job) error {
	before, err := j.record(ctx)
	if err != nil {
		return err
	}
	if err := j.store.Reset(ctx, j.key); err != nil {
		return err
	}
	after, err := j.state(ctx)
	if err != nil {
		return err
	}
	r := resetResult{Tenant: j.tenant, Class: j.key.Class, Key: after.Key, Existed: before.exists()}
	if after.LeasedOut != nil {
		r.LeasedOut = *after.LeasedOut
	}
	if j.json {
		return writeJSON(j.Out, r)
	}
	_, err = fmt.Fprintf(j.Out, "%s: %s\n", title(j.tenant, j.key.Class), r.words(after))
	return err
}

func (r *resetResult) words(after *state) string {
	switch {
	case !r.Existed:
		return "no record, the bucket was full."
	case r.LeasedOut > 0:
		return fmt.Sprintf("filled up to %s of %s tokens; %s leased out and stay with their replicas.",
			tty.Number(*after.Level), tty.Number(*after.Capacity), are(r.LeasedOut))
	}
	return "reset, the bucket is full."
}

func are(n int64) string {
	if n == 1 {
		return "1 is"
	}
	return tty.Count(n) + " are"
}
