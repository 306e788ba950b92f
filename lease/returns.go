package lease

import (
	"context"
	"sync"
)

// returns sends unspent tokens back, many tenants in one trip: whatever has gathered while a trip was under way goes with
// the next one. A return is sent once. What is sent here has left its lease before, so nothing is lost by losing it but
// tokens.
type returns struct {
	pool *Pool

	mu    sync.Mutex
	queue []giveback
	busy  bool // a goroutine is sending
}

type giveback struct {
	Return

	holder *Holder
}

// maxReturns is the most returns in one trip.
const maxReturns = 512

// add queues an item. It is called under the holder's lock, either before the holder is closed or by a draw that the pool's
// Close waits for: the work counted here is always counted before Close waits for it.
func (r *returns) add(h *Holder, item Return) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, giveback{item, h})
	if !r.busy {
		r.busy = true
		r.pool.work.Go(r.send)
	}
}

func (r *returns) next() []giveback {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.queue), maxReturns)
	if n == 0 {
		r.busy, r.queue = false, nil
		return nil
	}
	batch := r.queue[:n:n]
	r.queue = r.queue[n:]
	return batch
}

func (r *returns) send() {
	p := r.pool
	for batch := r.next(); batch != nil; batch = r.next() {
		items := make([]Return, len(batch))
		tokens := int64(0)
		for i, b := range batch {
			items[i] = b.Return
			tokens += b.Unspent
		}
		p.count.ReturnCalls.Add(1)
		_, err := ask(p, "return", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, p.store.Return(ctx, items)
		})
		if err != nil {
			p.count.ReturnLost.Add(tokens)
			p.count.Failed(ReasonOf(err)).Add(1)
		} else {
			p.count.Returned.Add(tokens)
		}
		for _, b := range batch {
			b.holder.arrived(b.Unspent + b.Waiters)
		}
	}
}
