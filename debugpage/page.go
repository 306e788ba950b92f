// Package debugpage serves a page about limiters, in the manner of net/http/pprof: which tenants are the busiest, what they have in
// hand, who is refused, what the store answers, and how far the bound is used. It is one HTML page without any other file, or
// JSON.
//
// It reads and never changes anything. It shows tenants and limits to whoever may see it: mount it behind what protects the
// other pages of that kind. It has no authentication of its own.
//
// What is not promised: the look of the page. The names in the JSON are part of the API.
package debugpage

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the template
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/leaselimit/leaselimit"
)

const (
	defaultRows = 25
	maxRows     = 200
	refresh     = 5 // seconds
)

var (
	//go:embed page.html
	page string
	//go:embed page.css
	style string

	parsed = template.Must(template.New("page").Funcs(template.FuncMap{
		"number": number, "duration": duration, "rate": rate, "percent": percent, "ratio": ratio, "limit": limitText,
		"deref": func(t *Tenant) Tenant { return *t },
	}).Parse(page))
)

// policy lets the page load nothing but its own style.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
}()

// Handler serves the page about lims, at any path. Its parameters:
//
//	tenant=NAME   that tenant, if it is in memory, before the busiest
//	n=ROWS        how many of the busiest tenants of each limiter, 1 to 200; default 25
//	refresh=1     reload the page every 5 seconds
//	format=json   JSON, as with an Accept header that asks for it
//
// Each request visits every tenant in memory. All methods but GET and HEAD are answered with 405.
func Handler(lims ...*leaselimit.Limiter) http.Handler {
	lims = append([]*leaselimit.Limiter(nil), lims...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, lims) })
}

// view is what the template gets.
type view struct {
	*Report

	Style   template.CSS
	Rows    int
	Refresh bool
}

func serve(w http.ResponseWriter, r *http.Request, lims []*leaselimit.Limiter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", policy)
	h.Add("Vary", "Accept")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "read only", http.StatusMethodNotAllowed)
		return
	}
	q := r.URL.Query()
	rows := defaultRows
	if s := q.Get("n"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxRows {
			http.Error(w, fmt.Sprintf("n must be 1 to %d", maxRows), http.StatusBadRequest)
			return
		}
		rows = n
	}
	report := newReport(lims, q.Get("tenant"), rows)
	var body bytes.Buffer
	var err error
	if wantsJSON(r) {
		h.Set("Content-Type", "application/json")
		e := json.NewEncoder(&body)
		e.SetIndent("", "  ")
		err = e.Encode(report)
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		v := view{Report: report, Style: template.CSS(style), Rows: rows, Refresh: q.Get("refresh") == "1"}
		if v.Refresh {
			h.Set("Refresh", strconv.Itoa(refresh))
		}
		err = parsed.Execute(&body, v)
	}
	if err != nil {
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body.Bytes())
}

func wantsJSON(r *http.Request) bool {
	if f := r.URL.Query().Get("format"); f != "" {
		return f == "json"
	}
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}
