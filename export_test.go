package leaselimit

// Sweep makes one step of the sweep of idle tenants, whenever it would be due.
func (l *Limiter) Sweep() { l.tenants.sweep() }
