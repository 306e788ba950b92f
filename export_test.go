package leaselimit

// Sweep makes one step of the sweep of idle tenants, whenever it would be due.
func (l *Limiter) Sweep() { l.tenants.sweep() }

// StopSweep stops the timer of that sweep. It reports whether it was set.
func (l *Limiter) StopSweep() bool {
	ts := &l.tenants
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.mu.sweep != nil && ts.mu.sweep.Stop()
}
