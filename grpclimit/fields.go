package grpclimit

import (
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

func (f *fields) policy(class string, limit quota.Limit) []string {
	p := f.last.Load()
	if p == nil || p.class != class || p.limit != limit {
		p = &policy{class: class, limit: limit, values: []string{ratefields.Policy(class, limit)}}
		f.last.Store(p)
	}
	return p.values
}

// of is the metadata of d, nil if there is none. A degraded decision has no figures: they would be made up. Whoever gets it must not change it.
func (f *fields) of(d leaselimit.Decision) metadata.MD {
	md := make(metadata.MD, 3)
	if text := ratefields.Limit(d); text != "" {
		md[ratefields.PolicyName] = f.policy(d.Class, d.Limit)
		md[ratefields.LimitName] = []string{text}
	}
	if text := ratefields.RetryAfter(d); text != "" {
		md[ratefields.RetryAfterName] = []string{text}
	}
	if len(md) == 0 {
		return nil
	}
	return md
}
