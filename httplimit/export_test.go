package httplimit

import "net/http"

// Origins is how many origins a pacing transport remembers.
func Origins(rt http.RoundTripper) int { return len(rt.(*transport).pace.origins) }
