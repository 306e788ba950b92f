package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// Check is the error of an operation that must not even begin: because ctx is done, or because of what one of the functions
// below found. Nothing has happened in the store.
func Check(ctx context.Context, op string, invalid error) error {
	if err := ctx.Err(); err != nil {
		return &lease.StoreError{Op: op, Reason: lease.ReasonTimeout, Err: err}
	}
	if invalid != nil {
		return &lease.StoreError{Op: op, Reason: lease.ReasonOther, Err: invalid}
	}
	return nil
}

// Acquire says what is wrong with a request.
func Acquire(r lease.AcquireRequest) error {
	if err := Bucket(r.Key, r.Terms); err != nil {
		return err
	}
	switch {
	case r.Need < 0:
		return fmt.Errorf("Need is %d, must not be negative", r.Need)
	case r.Min < 0 || (r.Need > 0 && r.Min > r.Need):
		return fmt.Errorf("Min is %d, must be 0 to Need, which is %d", r.Min, r.Need)
	case r.Want < 0:
		return fmt.Errorf("Want is %d, must not be negative", r.Want)
	case r.Horizon < 0:
		return fmt.Errorf("Horizon is %v, must not be negative", r.Horizon)
	case r.Replicas < 0:
		return fmt.Errorf("Replicas is %d, must not be negative", r.Replicas)
	case r.Held < 0:
		return fmt.Errorf("Held is %d, must not be negative", r.Held)
	}
	return reports(r.Reports)
}

func reports(rs [2]lease.Report) error {
	for _, r := range rs {
		if r.Tokens < 0 {
			return fmt.Errorf("Reports say %d tokens, must not be negative", r.Tokens)
		}
	}
	return nil
}

// Return says what is wrong with an item.
func Return(r lease.Return) error {
	if err := Bucket(r.Key, r.Terms); err != nil {
		return err
	}
	if math.IsNaN(r.At) || math.IsInf(r.At, 0) {
		return fmt.Errorf("At is %v, must be finite", r.At)
	}
	if r.Waiters < 0 || r.Unspent < 0 || r.Spent < 0 {
		return fmt.Errorf("Waiters, Unspent and Spent are %d, %d and %d, must not be negative", r.Waiters, r.Unspent, r.Spent)
	}
	return nil
}

// Take says what is wrong with charges. Several may name the same bucket.
func Take(charges []lease.Charge) error {
	if len(charges) == 0 {
		return errors.New("no charges")
	}
	for _, c := range charges {
		if err := Bucket(c.Key, c.Terms); err != nil {
			return err
		}
		if c.Cost < 1 {
			return fmt.Errorf("Cost is %d, must be 1 or more", c.Cost)
		}
		if c.Key.Tenant != charges[0].Key.Tenant {
			return errors.New("charges are of more than one tenant")
		}
		if err := reports(c.Reports); err != nil {
			return err
		}
	}
	return nil
}

// Bucket says what is wrong with the name of a bucket or its terms.
func Bucket(k lease.Key, t lease.Terms) error {
	if err := Key(k); err != nil {
		return err
	}
	if err := t.Limit.Validate(); err != nil {
		return err
	}
	switch {
	case t.Limit.IsUnlimited():
		return errors.New("Limit is unlimited, which no bucket is")
	case t.Budget < 0 || t.Budget > quota.MaxTokens:
		return fmt.Errorf("Budget is %d, must be 0 to %d", t.Budget, quota.MaxTokens)
	case t.Share < 0 || t.Share > quota.MaxTokens:
		return fmt.Errorf("Share is %d, must be 0 to %d", t.Share, quota.MaxTokens)
	case t.TTL <= 0:
		return fmt.Errorf("TTL is %v, must be positive", t.TTL)
	}
	return nil
}

// Key says what is wrong with the name of a bucket. It does not say the name: tenants may be secrets.
func Key(k lease.Key) error {
	switch {
	case k.Tenant == "":
		return errors.New("Key.Tenant is empty")
	case k.Class == "":
		return errors.New("Key.Class is empty")
	}
	return nil
}

// Present says what is wrong with the words of a replica.
func Present(class, id string, ttl time.Duration) error {
	switch {
	case class == "" || id == "":
		return errors.New("class or id is empty")
	case ttl < 0:
		return fmt.Errorf("ttl is %v, must not be negative", ttl)
	}
	return nil
}
