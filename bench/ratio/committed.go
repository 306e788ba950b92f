package ratio

import (
	"encoding/json"
	"fmt"
	"os"
)

// A Record is what is kept of one comparison, as times of ours over times of theirs.
type Record struct {
	Ratio  float64 `json:"ratio"`  // measured when it was committed; 0: never
	Target float64 `json:"target"` // to be reached; 0: none
}

// A File keeps the ratios that later ones are compared with.
type File struct {
	Machine string            `json:"machine"` // where the ratios were measured: other machines have others
	Pairs   map[string]Record `json:"pairs"`
}

// Load reads a file that Save wrote.
func Load(name string) (File, error) {
	f := File{Pairs: map[string]Record{}}
	text, err := os.ReadFile(name)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// Save writes f.
func (f File) Save(name string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// mostLoss is by how much a ratio may grow before the check fails.
const mostLoss = 1.25

// Lost reports whether got is a loss against what was committed.
func (r Record) Lost(got float64) bool { return r.Ratio > 0 && got > r.Ratio*mostLoss }

// Verdict says what got means.
func (r Record) Verdict(got float64) string {
	switch {
	case r.Lost(got):
		return "LOST"
	case r.Ratio == 0:
		return "new"
	case r.Target > 0 && got > r.Target:
		return "ok, above target"
	}
	return "ok"
}
