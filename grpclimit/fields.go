package grpclimit

import (
	"strconv"
	"sync/atomic"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/ratefields"
	"github.com/leaselimit/leaselimit/quota"
	"google.golang.org/grpc/metadata"
)

// fields writes decisions as metadata. It keeps the policy it wrote last: most often all tenants have one.
type fields struct{ last atomic.Pointer[policy] }

type policy struct {
	class  string
	limit  quota.Limit
	values []string // of the field. Never changed.
}

func (f *fields) policy(d *leaselimit.Decision) []string {
	p := f.last.Load()
	if p == nil || p.class != d.Class || p.limit != d.Limit {
		p = &policy{class: d.Class, limit: d.Limit, values: []string{string(ratefields.AppendPolicy(nil, d.Class, d.Limit))}}
		f.last.Store(p)
	}
	return p.values
}

// of is the metadata of d, nil if there is none. Whoever gets it must not change it.
func (f *fields) of(d *leaselimit.Decision) metadata.MD {
	md := make(metadata.MD, 3)
	if ratefields.Known(d) {
		var room [64]byte
		md[ratefields.PolicyName] = f.policy(d)
		md[ratefields.LimitName] = []string{string(ratefields.AppendLimit(room[:0], d))}
	}
	if wait := ratefields.RetryAfter(d); wait > 0 {
		md[ratefields.RetryAfterName] = []string{strconv.FormatInt(wait, 10)}
	}
	if len(md) == 0 {
		return nil
	}
	return md
}
