package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/leaselimit/leaselimit/bench/ratio"
	"golang.org/x/perf/benchfmt"
)

// A run is what one output of go test -bench says.
type run struct {
	config  map[string]string // its configuration lines: the machine and the versions
	results []result          // in the order of their first appearance
}

// A result is one benchmark, over all its repetitions.
type result struct {
	bench  string // without "Benchmark" and parameters
	params []param
	values map[string][]float64 // by unit
	units  []string             // in the order of the output
}

type param struct{ key, value string }

func (r *result) get(key string) string {
	for _, p := range r.params {
		if p.key == key {
			return p.value
		}
	}
	return ""
}

// median of a unit; ok is false if r has none.
func (r *result) median(unit string) (m float64, ok bool) {
	v, ok := r.values[unit]
	if !ok {
		return 0, false
	}
	return ratio.Median(slices.Clone(v)), true
}

func read(in io.Reader, name string) (run, error) {
	out := run{config: map[string]string{}}
	index := map[string]int{}
	for r := benchfmt.NewReader(in, name); ; {
		if !r.Scan() {
			return out, r.Err()
		}
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			return out, rec
		case *benchfmt.Result:
			for _, c := range rec.Config {
				out.config[c.Key] = string(c.Value)
			}
			i, known := index[rec.Name.String()]
			if !known {
				i = len(out.results)
				index[rec.Name.String()] = i
				out.results = append(out.results, newResult(rec.Name))
			}
			out.results[i].add(rec.Values)
		}
	}
}

func newResult(name benchfmt.Name) result {
	base, parts := name.Parts()
	r := result{bench: string(base), values: map[string][]float64{}}
	for _, p := range parts {
		if key, value, ok := strings.Cut(strings.TrimPrefix(string(p), "/"), "="); ok {
			r.params = append(r.params, param{key, value})
		}
	}
	return r
}

// add takes units as the benchmark wrote them, not in seconds.
func (r *result) add(values []benchfmt.Value) {
	for _, v := range values {
		unit, value := v.Unit, v.Value
		if v.OrigUnit != "" {
			unit, value = v.OrigUnit, v.OrigValue
		}
		if _, known := r.values[unit]; !known {
			r.units = append(r.units, unit)
		}
		r.values[unit] = append(r.values[unit], value)
	}
}

// A table has a name for each row and column, and a cell for some pairs of them.
type table struct {
	corner     string
	rows, cols []string
	cells      map[[2]string]float64
}

func (t *table) set(row, col string, v float64) {
	if t.cells == nil {
		t.cells = map[[2]string]float64{}
	}
	if !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
	if !slices.Contains(t.cols, col) {
		t.cols = append(t.cols, col)
	}
	t.cells[[2]string{row, col}] = v
}

// pivot puts the parameter corner into rows, all others into columns, and the medians of unit into cells.
func pivot(results []result, corner, unit string) table {
	t := table{corner: corner}
	for _, r := range results {
		if m, ok := r.median(unit); ok {
			t.set(r.get(corner), r.others(corner), m)
		}
	}
	return t
}

// byUnit has a row for each result and a column for each of the units that it has.
func byUnit(results []result, units []string) table {
	t := table{corner: "case"}
	for _, r := range results {
		for _, unit := range units {
			if m, ok := r.median(unit); ok {
				t.set(r.others(""), unit, m)
			}
		}
	}
	return t
}

// others are the parameters but key, in words.
func (r *result) others(key string) string {
	var words []string
	for _, p := range r.params {
		if p.key != key {
			words = append(words, p.key+" "+p.value)
		}
	}
	return strings.Join(words, ", ")
}

// markdown writes t with cells in the units of their columns, or in unit if it is not "".
func (t table) markdown(w *strings.Builder, unit string) {
	fmt.Fprintf(w, "| %s |", t.corner)
	for _, c := range t.cols {
		fmt.Fprintf(w, " %s |", strings.TrimSuffix(c, "-ns"))
	}
	w.WriteString("\n|---|" + strings.Repeat("---:|", len(t.cols)) + "\n")
	for _, row := range t.rows {
		fmt.Fprintf(w, "| %s |", row)
		for _, c := range t.cols {
			cell := ""
			if v, ok := t.cells[[2]string{row, c}]; ok {
				if unit != "" {
					cell = format(v, unit)
				} else {
					cell = format(v, c)
				}
			}
			fmt.Fprintf(w, " %s |", cell)
		}
		w.WriteString("\n")
	}
	w.WriteString("\n")
}

// compare says how many times as much as row the other one has, in each column.
func (t table) compare(w *strings.Builder, row, other string) {
	var words []string
	for _, c := range t.cols {
		a, ok := t.cells[[2]string{row, c}]
		b, okToo := t.cells[[2]string{other, c}]
		if ok && okToo {
			words = append(words, fmt.Sprintf("%s (%s)", digits(b/a), c))
		}
	}
	if words != nil {
		fmt.Fprintf(w, "Times of %s over those of %s: %s.\n\n", other, row, strings.Join(words, ", "))
	}
}

// format gives three digits, times in a unit that suits them.
func format(v float64, unit string) string {
	if unit == "ns/op" || strings.HasSuffix(unit, "-ns") {
		return duration(v)
	}
	return digits(v)
}

func duration(ns float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if ns >= u.size {
			return digits(ns/u.size) + " " + u.name
		}
	}
	return digits(ns) + " ns"
}

func digits(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// ratios is the table of the committed ones.
func ratios(w *strings.Builder, f ratio.File) {
	fmt.Fprintf(w, "Measured on: %s.\n\n| pair | ratio | target |\n|---|---:|---:|\n", f.Machine)
	for _, name := range slices.Sorted(maps.Keys(f.Pairs)) {
		fmt.Fprintf(w, "| %s | %.2f | %.2f |\n", name, f.Pairs[name].Ratio, f.Pairs[name].Target)
	}
	w.WriteString("\n")
}
