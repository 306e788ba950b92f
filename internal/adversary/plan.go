package adversary

import "time"

// plan is the attack that reaches the bound: fill the leases, let the bucket fill up beside them, then spend everything at
// once; a few times over, with old leases spent late and others returned just before.
func (e *episode) plan() {
	for range 1 + e.rng.IntN(3) {
		for range 3 + e.rng.IntN(6) {
			for _, r := range e.replicas {
				e.draw(r, 0, e.limit.Capacity, 0)
			}
		}
		wait := e.ttl
		if rate := e.limit.PerMillisecond(); rate > 0 {
			fill := time.Duration(float64(e.limit.Capacity) / rate * float64(time.Millisecond))
			wait = min(fill+time.Millisecond, e.longest*time.Duration(e.rng.IntN(100))/100)
		}
		e.touch()
		e.wait(wait)
		e.touch()
		if e.rng.IntN(3) == 0 {
			e.giveBack(e.any())
		}
		e.spendAll()
		e.wait(time.Duration(e.rng.Int64N(int64(3 * e.ttl))))
	}
}

// touch switches plans and has a replica ask for nothing, which puts its terms in force.
func (e *episode) touch() {
	if len(e.plans) > 1 {
		e.change()
		e.draw(e.any(), 0, 0, 0)
	}
}

// edge is the attack on the borders of epochs: lease everything at the end of one, spend it unreported at the end of the next,
// where the count of it runs out, and be there just after. Who has a longer window keeps its lease almost to the end of that.
func (e *episode) edge() {
	tau := e.ttl
	e.draw(e.replicas[0], 0, 1, 0) // an epoch begins
	start := e.now
	e.wait(tau - tau/40)
	for range e.replicas {
		e.draw(e.any(), 0, e.limit.Capacity, 0)
	}
	e.change()
	e.wait(start + 2*tau - tau/20 - e.now)
	for _, r := range e.replicas {
		if r.ttl == tau {
			e.spend(r, e.limit.Capacity)
		}
	}
	e.wait(start + 2*tau + time.Millisecond - e.now)
	e.wait(start + tau + e.longest*9/10 - e.now)
	e.spendAll()
}

// spendAll spends whatever can be spent at this moment.
func (e *episode) spendAll() {
	for _, r := range e.replicas {
		e.spend(r, e.limit.Capacity)
	}
	for _, r := range e.replicas {
		for _, n := range []int64{e.limit.Capacity / 2, e.limit.Capacity / 4, 1, 1, 1} {
			e.draw(r, max(1, n), 0, 0)
		}
	}
}
