package debugpage

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// number groups digits by a thin space that does not break.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	start := len(digits) % 3
	if n < 0 {
		start = 1 + (len(digits)-1)%3
	}
	out := digits[:start]
	for i := start; i < len(digits); i += 3 {
		if out != "" && out != "-" {
			out += "\u202f"
		}
		out += digits[i : i+3]
	}
	return out
}

func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "0"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func rate(r float64) string {
	switch {
	case r < 0.05:
		return "0"
	case r < 10:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return number(int64(math.Round(r)))
}

func percent(f float64) string {
	return strconv.FormatFloat(math.Round(f*1000)/10, 'f', -1, 64) + "\u202f%"
}

// ratio is n of all in percent of a bar, 0 to 100.
func ratio(n, all any) float64 {
	a, b := float(n), float(all)
	if b <= 0 {
		return 0
	}
	return math.Round(1000*min(1, max(0, a/b))) / 10
}

func float(v any) float64 {
	if n, ok := v.(int64); ok {
		return float64(n)
	}
	return v.(float64)
}

func limitText(t Tenant) string {
	s := number(t.Capacity)
	if t.Refill > 0 {
		per := time.Duration(t.Per * float64(time.Second))
		unit := map[time.Duration]string{time.Second: "s", time.Minute: "min", time.Hour: "h"}[per]
		if unit == "" {
			unit = per.String()
		}
		s += fmt.Sprintf(", %s/%s", number(t.Refill), unit)
	}
	return s
}
