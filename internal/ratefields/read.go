package ratefields

import (
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
)

// A Limit is what the fields of an answer tell of one limit.
type Limit struct {
	// Key tells the limits of a server apart: by name, by partition (pk) where there is one, and where several have both in
	// common, by their order.
	Key       string
	Remaining int64         // r
	Window    time.Duration // t
	Quota     int64         // q; 0 if it is not told
	Period    time.Duration // w; 0 if it is not told
}

// maxSpan is the longest that t and w are taken for: far above any wait, and far from overflow.
const maxSpan = 10 * 365 * 24 * time.Hour

// Read reads the values of the fields LimitName and PolicyName. Malformed fields are ignored, as the draft asks, and so are limits
// without r or t and those that do not count requests (qu).
func Read(limits, policies []string) []Limit {
	items := members(limits)
	if len(items) == 0 {
		return nil
	}
	quotas := map[string]*httpsfv.Params{}
	for _, p := range members(policies) {
		quotas[p.key] = p.params
	}
	var read []Limit
	for _, item := range items {
		r, hasR := integer(item.params, "r")
		t, hasT := integer(item.params, "t")
		quota := quotas[item.key]
		if quota == nil { // the policy is the same for all partitions
			quota = quotas[item.name]
		}
		if !hasR || !hasT || !countsRequests(quota) {
			continue
		}
		q, _ := integer(quota, "q")
		w, _ := integer(quota, "w")
		read = append(read, Limit{Key: item.key, Remaining: r, Window: span(t), Quota: q, Period: span(w)})
	}
	return read
}

type member struct {
	key, name string
	params    *httpsfv.Params
}

// members are the items of a list that have a name.
func members(values []string) []member {
	if len(values) == 0 {
		return nil
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		return nil
	}
	var (
		found []member
		seen  = map[string]int{}
	)
	for _, m := range list {
		item, isItem := m.(httpsfv.Item)
		if !isItem {
			continue
		}
		name, isString := item.Value.(string)
		if token, isToken := item.Value.(httpsfv.Token); isToken { // as earlier drafts have it, and a later one may
			name, isString = string(token), true
		}
		if !isString {
			continue
		}
		key := name
		if pk, _ := item.Params.Get("pk"); pk != nil {
			if partition, isBytes := pk.([]byte); isBytes {
				key += "\x00" + string(partition) // no name has a NUL
			}
		}
		seen[key]++
		if n := seen[key]; n > 1 {
			key += "\x00\x00" + strconv.Itoa(n)
		}
		found = append(found, member{key, name, item.Params})
	}
	return found
}

// countsRequests reports whether a quota is one of requests, as it is if nothing else is said. A client cannot pace itself by
// bytes, or by how many of its requests are under way.
func countsRequests(quota *httpsfv.Params) bool {
	if quota == nil {
		return true
	}
	unit, told := quota.Get("qu")
	return !told || unit == "requests" || unit == "request" // the draft has both
}

// integer is a parameter that is an integer of 0 or more.
func integer(p *httpsfv.Params, key string) (int64, bool) {
	if p == nil {
		return 0, false
	}
	value, _ := p.Get(key)
	n, ok := value.(int64)
	if !ok || n < 0 {
		return 0, false
	}
	return n, true
}

func span(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(maxSpan/time.Second))) * time.Second
}
