package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// A record is what is kept of one pair, as times of ours over times of theirs.
type record struct {
	Ratio  float64 `json:"ratio"`  // measured when it was committed; 0: never
	Target float64 `json:"target"` // to be reached; 0: none
}

// file is ratios.json.
type file struct {
	Machine string            `json:"machine"` // where the ratios were measured: other machines have others
	Pairs   map[string]record `json:"pairs"`
}

func load(name string) (file, error) {
	f := file{Pairs: map[string]record{}}
	text, err := os.ReadFile(name)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

func (f file) save(name string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// mostLoss is by how much a ratio may grow before the check fails.
const mostLoss = 1.25

// lost reports whether got is a loss against what was committed.
func (r record) lost(got float64) bool { return r.Ratio > 0 && got > r.Ratio*mostLoss }

// verdict says what got means.
func (r record) verdict(got float64) string {
	switch {
	case r.lost(got):
		return "LOST"
	case r.Ratio == 0:
		return "new"
	case r.Target > 0 && got > r.Target:
		return "ok, above target"
	}
	return "ok"
}
