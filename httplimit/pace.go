package httplimit

import (
	"net/http"
	"sync"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/leaselimit/leaselimit/internal/patience"
)

// maxOrigins is how many origins a pacer remembers. Forgetting one costs at most a refusal.
const maxOrigins = 1024

// A pacer spaces the requests to each origin as far apart as the server's answers suggest. A nil pacer does nothing.
type pacer struct {
	mu      sync.Mutex
	origins map[string]pace // by scheme and host, as identities and limits are not known
}

type pace struct {
	gap   time.Duration // between two requests
	until time.Time     // when gap is out of date
	next  time.Time     // when the next request may leave
}

// turn is how long req has to wait for its turn, which it takes; 0 without taking one if that is longer than most or past
// its deadline.
func (p *pacer) turn(req *http.Request, most time.Duration) time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key, now := origin(req), time.Now()
	o, known := p.origins[key]
	if !known || now.After(o.until) {
		return 0
	}
	wait := max(0, o.next.Sub(now))
	if wait > most || patience.PastDeadline(req.Context(), wait) {
		return 0
	}
	o.next = now.Add(wait + patience.Jitter(o.gap))
	p.origins[key] = o
	return wait
}

// learn takes note of an answer. One without the fields says nothing new, and one from a cache nothing about now.
func (p *pacer) learn(req *http.Request, resp *http.Response) {
	if p == nil {
		return
	}
	if age := resp.Header.Get("Age"); age != "" && age != "0" {
		return
	}
	gap, fresh, ok := suggestion(resp.Header)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.origins == nil || len(p.origins) >= maxOrigins {
		p.origins = make(map[string]pace)
	}
	key, now := origin(req), time.Now()
	o := p.origins[key]
	// What was decided for requests that wait already stands. Otherwise the next one leaves a gap after this answer.
	if next := now.Add(patience.Jitter(gap)); gap > 0 && !o.next.After(now) {
		o.next = next
	}
	o.gap, o.until = gap, now.Add(fresh)
	p.origins[key] = o
}

func origin(req *http.Request) string { return req.URL.Scheme + "://" + req.URL.Host }

// suggestion is how far apart the fields in h suggest that requests are, and for how long that is worth something. The slowest
// of several limits rules. Malformed fields are ignored, as the draft asks.
func suggestion(h http.Header) (gap, fresh time.Duration, ok bool) {
	limits := items(h[fieldLimit])
	quotas := items(h[fieldPolicy])
	for name, limit := range limits {
		r, hasR := integer(limit, "r")
		t, hasT := integer(limit, "t")
		if !hasR || !hasT {
			continue
		}
		ok = true
		window := time.Duration(min(t, 24*60*60)) * time.Second // far above any wait, and far from overflow
		fresh = max(fresh, window)
		if q, hasQ := integer(quotas[name], "q"); !hasQ || r <= q/2 {
			gap = max(gap, window/time.Duration(max(1, r)))
		}
	}
	return gap, fresh, ok
}

// items are the items of a list by name, with their parameters.
func items(values []string) map[string]*httpsfv.Params {
	if len(values) == 0 {
		return nil
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		return nil
	}
	byName := make(map[string]*httpsfv.Params, len(list))
	for _, member := range list {
		item, isItem := member.(httpsfv.Item)
		if !isItem {
			continue
		}
		switch name := item.Value.(type) {
		case string:
			byName[name] = item.Params
		case httpsfv.Token: // as a later draft may have it
			byName[string(name)] = item.Params
		}
	}
	return byName
}

// integer is a parameter that is an integer of 0 or more.
func integer(p *httpsfv.Params, key string) (int64, bool) {
	if p == nil {
		return 0, false
	}
	value, _ := p.Get(key)
	n, ok := value.(int64)
	return n, ok && n >= 0
}
