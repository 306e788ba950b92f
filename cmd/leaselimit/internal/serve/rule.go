package serve

import (
	"fmt"
	"slices"

	envoy "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// rule says whose limit of which class a descriptor is about.
type rule struct {
	Domain  string  `yaml:"domain"`  // "" is any
	Entries []entry `yaml:"entries"` // all of a descriptor's, in its order
	Tenant  string  `yaml:"tenant"`  // the key of the entry whose value is the tenant
	Class   string  `yaml:"class"`
}

// entry is one of a descriptor's.
type entry struct {
	Key   string  `yaml:"key"`
	Value *string `yaml:"value"` // nil is any
}

func (r rule) validate(field string, classes map[string]class) (errs []error) {
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(field+format, args...)) }
	if len(r.Entries) == 0 {
		fail(".entries is empty, must have one or more")
	}
	seen := map[string]bool{}
	for i, e := range r.Entries {
		switch {
		case e.Key == "":
			fail(".entries[%d].key is empty", i)
		case seen[e.Key] && e.Key == r.Tenant:
			fail(".tenant is %q, the key of two entries", r.Tenant)
		}
		seen[e.Key] = true
	}
	if r.Tenant == "" || !seen[r.Tenant] {
		fail(".tenant is %q, must be the key of an entry", r.Tenant)
	}
	if _, ok := classes[r.Class]; !ok {
		fail(".class is %q, must be one of classes", r.Class)
	}
	return errs
}

// match reports whether r is about d, and the tenant that d names.
func (r rule) match(domain string, d *envoy.RateLimitDescriptor) (tenant string, ok bool) {
	if r.Domain != "" && r.Domain != domain || len(r.Entries) != len(d.GetEntries()) {
		return "", false
	}
	for i, e := range d.GetEntries() {
		want := r.Entries[i]
		if want.Key != e.GetKey() || want.Value != nil && *want.Value != e.GetValue() {
			return "", false
		}
		if want.Key == r.Tenant {
			tenant = e.GetValue()
		}
	}
	return tenant, true
}

// find is the first rule that is about d.
func (c config) find(domain string, d *envoy.RateLimitDescriptor) (class, tenant string, ok bool) {
	i := slices.IndexFunc(c.Rules, func(r rule) (matches bool) {
		tenant, matches = r.match(domain, d)
		return matches
	})
	if i < 0 {
		return "", "", false
	}
	return c.Rules[i].Class, tenant, true
}
