package leaselimit

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/leaselimit/leaselimit/lease"
)

// A Charge is what a call of [AllowAll] spends of one limit. One Limiter may be charged more than once: its costs add up.
type Charge struct {
	Limiter *Limiter
	Cost    int64
}

// AllowAll decides whether tenant may spend all of the charges now, and spends them if so: all or none. It is for calls that
// several limits have to let pass, such as a tenant's total and its "export" class. With leases in hand for all of them it
// decides from memory. What is missing is taken from the store in one trip, for which the call waits as [Limiter.AllowN] does,
// at most the shortest Config.StoreTimeout. A refusal charges nothing.
//
// The Decision is on the whole. A refusal is that of the limit whose RetryAfter is the longest, and Class names it. If the call
// is allowed, it is that of the limit with the fewest tokens remaining, or of one that would refuse but for Config.Shadow; its
// Source says whether the call waited for the store, or is degraded, for any of the limits.
//
// A limiter with Config.Shadow refuses nothing: it is charged alone, after the others. Where the store does not answer, the
// OnFailure of each limiter decides for it. Of each limiter the call is counted once.
//
// An error means what it means for AllowN. The limiters must be over the same store, or it is [ErrInvalidCharges].
func AllowAll(ctx context.Context, tenant string, charges ...Charge) (Decision, error) {
	return allowAll(ctx, tenant, nil, charges)
}

// AllowAllInto is AllowAll that also tells what each limit had to say: into[i], of the limit of charges[i], is allowed unless that
// limit refuses, whatever the others do. Of a limit that nobody asked because another had refused already, it is as far as is known
// here. into must be as long as charges, and is not to be read after an error.
func AllowAllInto(ctx context.Context, tenant string, into []Decision, charges ...Charge) (Decision, error) {
	if len(into) != len(charges) {
		return Decision{}, fmt.Errorf("%w: into has %d elements, must have one for each of %d", ErrInvalidCharges, len(into), len(charges))
	}
	return allowAll(ctx, tenant, into, charges)
}

// part is one limiter's part of a call of AllowAll.
type part struct {
	lease.Part

	lim    *Limiter
	tenant *tenant
	state  partState
	d      Decision // final once it is refused, or the whole is allowed
}

type partState uint8

const (
	partOpen     partState = iota // the store has to be asked
	partFree                      // passes and takes nothing: unlimited, or shadowed
	partTaken                     // has taken its cost from leases or the store
	partFallback                  // the failure policy lets it pass
	partRefused
)

// inline is how many parts need no allocation.
const inline = 4

func allowAll(ctx context.Context, tenant string, into []Decision, charges []Charge) (Decision, error) {
	var room [inline]part
	parts, err := merge(room[:0], charges)
	if err != nil {
		return Decision{}, err
	}
	for i := range parts {
		p := &parts[i]
		if p.Limit, err = p.lim.admit(ctx, tenant, p.Cost); err != nil {
			failOthers(parts, i)
			return Decision{}, err
		}
	}
	for i := range parts {
		parts[i].try(tenant)
	}
	if anyIn(partOpen, parts) && !anyIn(partRefused, parts) {
		// On a copy: what a goroutine may look at is allocated.
		slow := slices.Clone(parts)
		if err := askAll(ctx, slow, tenant); err != nil {
			return Decision{}, err
		}
		return conclude(ctx, tenant, slow, into, charges), nil
	}
	return conclude(ctx, tenant, parts, into, charges), nil
}

// merge makes one part for each limiter.
func merge(parts []part, charges []Charge) ([]part, error) {
	if len(charges) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrInvalidCharges)
	}
	for i, c := range charges {
		if c.Limiter == nil {
			return nil, fmt.Errorf("%w: the limiter of charge %d is nil", ErrInvalidCharges, i)
		}
		if c.Limiter != charges[0].Limiter && !sameStore(c.Limiter.store, charges[0].Limiter.store) {
			return nil, fmt.Errorf("%w: the limiters of charges 0 and %d are over different stores", ErrInvalidCharges, i)
		}
		at := slices.IndexFunc(parts, func(p part) bool { return p.lim == c.Limiter })
		if at < 0 {
			at = len(parts)
			parts = append(parts, part{lim: c.Limiter})
			parts[at].Cost = c.Cost
			continue
		}
		p := &parts[at]
		switch {
		case c.Cost < 1 || p.Cost < 1:
			p.Cost = 0 // not valid, whatever the sum
		case c.Cost > math.MaxInt64-p.Cost:
			p.Cost = math.MaxInt64
		default:
			p.Cost += c.Cost
		}
	}
	return parts, nil
}

// sameStore compares two stores, whose type need not be comparable.
func sameStore(a, b lease.Store) bool {
	ta, tb := reflect.TypeOf(a), reflect.TypeOf(b)
	return ta == tb && ta.Comparable() && a == b
}

// failOthers counts an error of part i for the other limiters, too.
func failOthers(parts []part, i int) {
	for j := range parts {
		if j != i {
			parts[j].lim.count.errors.Add(1)
		}
	}
}

// anyIn reports whether one of the parts is in a state.
func anyIn(state partState, parts []part) bool {
	for i := range parts {
		if parts[i].state == state {
			return true
		}
	}
	return false
}

// try decides on the part from memory, if memory can.
func (p *part) try(tenant string) {
	l := p.lim
	p.d.Class, p.d.Limit = l.cfg.Class, p.Limit
	switch {
	case p.Limit.IsUnlimited():
		p.d.Allowed, p.d.Source, p.d.Remaining = true, SourceLease, math.MaxInt64
		p.state = partFree
		return
	case p.Cost > p.Limit.Capacity:
		l.count.never.Add(1)
		p.d.Source, p.d.RetryAfter = SourcePrecheck, Never
		p.refuse()
		return
	}
	p.tenant = l.tenants.load(tenant)
	if p.tenant == nil {
		return
	}
	p.Holder = &p.tenant.holder
	if p.Try() {
		p.tenant.holder.Touch()
		p.settle()
	}
}

// settle takes over the Result of the part, if it has one.
func (p *part) settle() {
	switch {
	case p.Result.Allowed():
		p.state = partTaken
	case p.Result.Verdict != 0:
		p.lim.fill(&p.d, &p.Limit, p.Result)
		p.tenant.slow.decided(p.Result.Verdict)
		p.lim.cfg.Observer.refused(p.tenant.name(), p.Cost, &p.d)
		p.refuse()
	}
}

// refuse is the end of a part that d refuses, but for Config.Shadow.
func (p *part) refuse() {
	p.state = partRefused
	if p.lim.shadow(&p.d); p.d.Shadowed {
		p.state = partFree
	}
}

// conclude gives the decision on the whole, having kept what was taken, or undone it if the call is refused.
func conclude(ctx context.Context, tenant string, parts []part, into []Decision, charges []Charge) Decision {
	refused := anyIn(partRefused, parts)
	for i := range parts {
		if refused {
			parts[i].undo()
		} else {
			parts[i].keep()
		}
		parts[i].lim.show(ctx, tenant, parts[i].Cost, parts[i].d)
	}
	for i := range into {
		at := slices.IndexFunc(parts, func(p part) bool { return p.lim == charges[i].Limiter })
		into[i] = parts[at].d
	}
	if refused {
		return longest(parts)
	}
	return tightest(parts)
}

// keep makes final that the part passes.
func (p *part) keep() {
	switch p.state {
	case partTaken:
		p.Keep()
		p.lim.fill(&p.d, &p.Limit, p.Result)
		p.tenant.slow.decided(p.Result.Verdict)
	case partFallback:
		p.lim.count.allowedFallback.Add(1)
		p.tenant.slow.failedOver(true)
	case partFree:
		if !p.d.Shadowed {
			p.lim.count.unlimited.Add(1)
		}
	}
}

// undo is the end of a part of a call that another refuses.
func (p *part) undo() {
	if p.state == partRefused || p.d.Shadowed {
		return // has been counted
	}
	p.lim.count.together.Add(1)
	if p.tenant != nil {
		p.tenant.slow.rest().refused.Add(1)
	}
	p.giveBack()
	p.d.Allowed = true
	switch p.state {
	case partTaken:
		p.d.Source = SourceLease
		if p.Result.Verdict == lease.FromStore {
			p.d.Source = SourceStore
		}
		p.d.Remaining = min(p.Limit.Capacity, p.Result.Remaining+p.Cost)
	case partFallback:
		if p.d.Policy == FailLocal {
			p.d.Remaining += p.Cost
		}
	case partOpen:
		p.d.Source, p.d.Remaining = SourceLease, p.Limit.Capacity
		if p.tenant != nil {
			p.d.Remaining = p.Holder.Remaining()
		}
	}
}

// giveBack gives back what the part took, from leases and the store or from the share for an outage.
func (p *part) giveBack() {
	switch {
	case p.state == partTaken:
		p.Undo()
	case p.state == partFallback && p.d.Policy == FailLocal:
		p.tenant.holder.GiveShare(p.Limit, p.Cost)
	}
}

// longest is the refusal that can pass last.
func longest(parts []part) (d Decision) {
	for i := range parts {
		if p := &parts[i]; p.state == partRefused && (d.Source == 0 || p.d.RetryAfter > d.RetryAfter) {
			d = p.d
		}
	}
	return d
}

// tightest is the decision of the part that has least left, or that is shadowed, with what has to be said of the others.
func tightest(parts []part) Decision {
	best := &parts[0]
	var source Source
	var policy FailurePolicy
	for i := range parts {
		p := &parts[i]
		tighter := p.d.Remaining < best.d.Remaining
		if p.d.Shadowed != best.d.Shadowed {
			tighter = p.d.Shadowed
		}
		if tighter {
			best = p
		}
		if !p.d.Shadowed && p.d.Source > source {
			source, policy = p.d.Source, p.d.Policy
		}
	}
	d := best.d
	if source == SourceFallback || (!d.Shadowed && source > d.Source) {
		d.Source, d.Policy = source, policy
	}
	return d
}
