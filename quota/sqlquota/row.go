package sqlquota

import (
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/leaselimit/leaselimit/quota"
)

// read takes the limit out of the one row of a result.
func read(rows *sql.Rows) (quota.Limit, error) {
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return quota.Limit{}, err
		}
		return quota.Limit{}, quota.ErrUnknownTenant
	}
	var r row
	if err := rows.Scan(&r.capacity, &r.refill, &r.periodMS, &r.unlimited); err != nil {
		return quota.Limit{}, fmt.Errorf("%w: %w", quota.ErrInvalid, err) // not four columns, or not such numbers
	}
	if rows.Next() {
		return quota.Limit{}, fmt.Errorf("%w: more than one row", quota.ErrInvalid)
	}
	if err := rows.Err(); err != nil {
		return quota.Limit{}, err
	}
	return r.limit()
}

// row is what the query answers with.
type row struct {
	capacity, refill, periodMS sql.NullInt64
	unlimited                  sql.NullBool
}

const maxPeriodMS = math.MaxInt64 / int64(time.Millisecond)

func (r row) limit() (quota.Limit, error) {
	given := r.capacity.Valid || r.refill.Valid || r.periodMS.Valid
	switch {
	case !r.unlimited.Valid && !given:
		return quota.Limit{}, fmt.Errorf("%w: the tier has none for this class", quota.ErrInvalid)
	case !r.unlimited.Valid:
		return quota.Limit{}, invalid("unlimited", "NULL", "true or false")
	case r.unlimited.Bool && given:
		return quota.Limit{}, invalid("unlimited", "true", "false where there is a limit")
	case r.unlimited.Bool:
		return quota.Unlimited, nil
	case !r.capacity.Valid:
		return quota.Limit{}, invalid("capacity", "NULL", "a number")
	case !r.refill.Valid:
		return quota.Limit{}, invalid("refill", "NULL", "a number")
	case !r.periodMS.Valid:
		return quota.Limit{}, invalid("period_ms", "NULL", "a number")
	case r.periodMS.Int64 < 1 || r.periodMS.Int64 > maxPeriodMS:
		return quota.Limit{}, invalid("period_ms", r.periodMS.Int64, fmt.Sprintf("1 to %d", maxPeriodMS))
	}
	limit := quota.Limit{
		Capacity: r.capacity.Int64,
		Refill:   r.refill.Int64,
		Per:      time.Duration(r.periodMS.Int64) * time.Millisecond,
	}
	if limit.IsUnlimited() { // said in numbers, not in words
		return quota.Limit{}, invalid("capacity", limit.Capacity, fmt.Sprintf("at most %d", quota.MaxTokens))
	}
	return limit, limit.Validate()
}

func invalid(column string, is any, must string) error {
	return fmt.Errorf("%w: %s is %v, must be %s", quota.ErrInvalid, column, is, must)
}
