package leaselimit

import (
	"context"
	"errors"

	"github.com/leaselimit/leaselimit/lease"
)

// This file is the half of AllowAll that waits for the store.

// askAll decides on the parts that memory could not decide on. If it fails, nothing stays taken.
func askAll(ctx context.Context, parts []part, tenant string) error {
	for i := range parts {
		parts[i].Hold()
	}
	err := askEach(ctx, parts, tenant)
	if err == nil {
		return nil
	}
	for i := range parts {
		p := &parts[i]
		p.giveBack()
		if p.state != partRefused && !p.d.Shadowed {
			p.lim.count.errors.Add(1)
		}
	}
	if errors.Is(err, lease.ErrClosed) {
		return ErrClosed
	}
	return undecided(err)
}

// askEach decides on the real parts together, and then on each shadowed one alone.
func askEach(ctx context.Context, parts []part, tenant string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	groups := [][]*part{nil}
	for i := range parts {
		switch p := &parts[i]; {
		case p.state != partOpen:
		case p.lim.cfg.Shadow:
			groups = append(groups, []*part{p})
		default:
			groups[0] = append(groups[0], p)
		}
	}
	for _, group := range groups {
		if err := ask(ctx, group, tenant); err != nil {
			return err
		}
		if anyIn(partRefused, parts) {
			return nil
		}
	}
	return nil
}

// ask decides on parts, all or nothing: by what is known of each, then by the store.
func ask(ctx context.Context, parts []*part, tenant string) error {
	for {
		asked, err := judge(parts, tenant)
		if err == nil && len(asked) > 0 {
			err = take(ctx, asked)
		}
		if !errors.Is(err, lease.ErrRetired) { // evicted meanwhile
			return err
		}
	}
}

// judge finds the parts for the store to decide on, none if one is refused without.
func judge(parts []*part, tenant string) (asked []*part, err error) {
	for _, p := range parts {
		if p.state != partOpen {
			continue
		}
		p.tenant = p.lim.tenants.get(tenant, p.Limit)
		p.tenant.holder.Touch()
		p.Part = lease.Part{Holder: &p.tenant.holder, Limit: p.Limit, Cost: p.Cost}
		switch err := p.Judge(); {
		case errors.Is(err, lease.ErrRetired), errors.Is(err, lease.ErrClosed):
			return nil, err
		case err != nil:
			p.failed(err)
		}
		p.settle()
	}
	for _, p := range parts {
		switch p.state {
		case partRefused:
			return nil, nil
		case partOpen:
			asked = append(asked, p)
		}
	}
	return asked, nil
}

// take has the store decide on parts.
func take(ctx context.Context, parts []*part) error {
	shares := make([]*lease.Part, len(parts))
	for i, p := range parts {
		own := p.Part // its own: a late answer may come to it when the part is long decided
		shares[i] = &own
	}
	err := lease.Take(ctx, shares)
	if _, failed := errors.AsType[*lease.StoreError](err); failed {
		for _, p := range parts {
			p.failed(err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	for i, p := range parts {
		p.Part = *shares[i]
		p.settle()
	}
	return nil
}

// failed has the failure policy decide on the part.
func (p *part) failed(err error) {
	p.lim.warnOfBucket(err)
	p.lim.decideFallback(&p.d, p.tenant, p.Cost)
	if p.state = partFallback; !p.d.Allowed {
		p.lim.count.refusedFallback.Add(1)
		p.tenant.slow.failedOver(false)
		p.refuse()
	}
}
