package serve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
	"go.yaml.in/yaml/v3"
)

// config is the file: what a limit is, and which descriptors are held to it. docs/serve.md is its reference.
type config struct {
	Unmatched string           `yaml:"unmatched"` // allow (the default) or refuse
	Classes   map[string]class `yaml:"classes"`
	Rules     []rule           `yaml:"rules"`
}

// class is a limit and how it is held. What is left out has the default of leaselimit.Config.
type class struct {
	limit `yaml:",inline"`

	Tenants map[string]limit `yaml:"tenants"` // those with a limit of their own

	OnFailure    string   `yaml:"on_failure"` // local (the default), open, closed or error
	MaxOvershoot *float64 `yaml:"max_overshoot"`
	Exact        bool     `yaml:"exact"`
	LeaseShare   float64  `yaml:"lease_share"`
	LeaseTTL     duration `yaml:"lease_ttl"`
	StoreTimeout duration `yaml:"store_timeout"`
	Replicas     int      `yaml:"replicas"`
	MaxTenants   int      `yaml:"max_tenants"`
	Shadow       bool     `yaml:"shadow"`
}

// limit is a quota.Limit that says when something was forgotten.
type limit struct {
	Capacity  *int64   `yaml:"capacity"`
	Refill    *int64   `yaml:"refill"`
	Per       duration `yaml:"per"`
	Unlimited bool     `yaml:"unlimited"`
}

// duration is a time.Duration that is written with its unit. Without this, a bare number would be nanoseconds.
type duration time.Duration

// UnmarshalYAML reads "1m30s".
func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is no duration such as 30s", n.Line, n.Value)
	}
	*d = duration(v)
	return nil
}

// parse reads a config, of YAML or JSON, and refuses fields that it does not know.
func parse(text []byte) (config, error) {
	var c config
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	switch err := dec.Decode(&c); {
	case errors.Is(err, io.EOF):
		return c, errors.New("the file is empty")
	case err != nil:
		if types, ok := errors.AsType[*yaml.TypeError](err); ok {
			return c, errors.New(strings.Join(types.Errors, "; "))
		}
		return c, err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return c, errors.New("there is more than one document in the file")
	}
	return c, c.validate()
}

// validate reports everything that is wrong with c, but for what leaselimit.New finds.
func (c config) validate() error {
	var errs []error
	if !slices.Contains([]string{"", "allow", "refuse"}, c.Unmatched) {
		errs = append(errs, fmt.Errorf("unmatched is %q, must be allow or refuse", c.Unmatched))
	}
	if len(c.Classes) == 0 {
		errs = append(errs, errors.New("classes is empty, must have one or more"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Classes)) {
		errs = append(errs, c.Classes[name].validate("classes."+name)...)
	}
	if len(c.Rules) == 0 {
		errs = append(errs, errors.New("rules is empty, must have one or more"))
	}
	for i, r := range c.Rules {
		errs = append(errs, r.validate(fmt.Sprintf("rules[%d]", i), c.Classes)...)
	}
	return errors.Join(errs...)
}

func (c class) validate(field string) (errs []error) {
	if _, err := c.quota(); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", field, err))
	}
	for _, tenant := range slices.Sorted(maps.Keys(c.Tenants)) {
		if tenant == "" {
			errs = append(errs, fmt.Errorf("%s.tenants has an empty name", field))
		}
		if _, err := c.Tenants[tenant].quota(); err != nil {
			errs = append(errs, fmt.Errorf("%s.tenants.%s: %w", field, tenant, err))
		}
	}
	if _, err := c.policy(); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", field, err))
	}
	if c.MaxOvershoot != nil && *c.MaxOvershoot == 0 {
		errs = append(errs, fmt.Errorf("%s: max_overshoot is 0, set exact in its place", field))
	}
	return errs
}

// quota is the limit as it is enforced.
func (l limit) quota() (quota.Limit, error) {
	switch {
	case l.Unlimited && (l.Capacity != nil || l.Refill != nil || l.Per != 0):
		return quota.Limit{}, errors.New("unlimited excludes capacity, refill and per")
	case l.Unlimited:
		return quota.Unlimited, nil
	case l.Capacity == nil:
		return quota.Limit{}, errors.New("capacity is missing")
	case l.Refill == nil:
		return quota.Limit{}, errors.New("refill is missing (0 never refills)")
	}
	q := quota.Limit{Capacity: *l.Capacity, Refill: *l.Refill, Per: time.Duration(l.Per)}
	return q, q.Validate()
}

// policy is what on_failure says.
func (c class) policy() (leaselimit.FailurePolicy, error) {
	switch c.OnFailure {
	case "", "local":
		return leaselimit.FailLocal, nil
	case "open":
		return leaselimit.FailOpen, nil
	case "closed", onFailureError:
		return leaselimit.FailClosed, nil
	}
	return 0, fmt.Errorf("on_failure is %q, must be local, open, closed or error", c.OnFailure)
}

// onFailureError leaves the decision to Envoy's failure_mode_deny.
const onFailureError = "error"
