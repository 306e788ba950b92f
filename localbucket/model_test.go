package localbucket_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/leaselimit/leaselimit/localbucket"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// token is a token of the model: when it may be spent, from and until.
type token struct{ from, until int64 }

// ref is a lease as a list of tokens, in the order in which they are spent.
type ref struct {
	lease   *localbucket.Lease
	granted int64
	tokens  []token
	taken   int64 // that may be put back
	closed  bool
}

func (r *ref) ready(now int64) (n int64) {
	for _, k := range r.tokens {
		if k.from <= now && now < k.until {
			n++
		}
	}
	return n
}

func (r *ref) take(n int64) { r.tokens, r.taken = r.tokens[n:], r.taken+n }

// model is the bucket of the library beside the one of lists.
type model struct {
	bucket localbucket.Bucket
	refs   []*ref // in the bucket
	gone   []*ref
	now    int64
	epoch  int64
}

func (m *model) add(t *rapid.T) {
	n := rapid.Int64Range(1, 12).Draw(t, "tokens")
	g := localbucket.Grant{Tokens: n, Ready: n, Deadline: m.now + rapid.Int64Range(1, 200).Draw(t, "window")}
	if rapid.Bool().Draw(t, "dated") {
		g.Ready = rapid.Int64Range(0, n).Draw(t, "ready")
		g.Next = rapid.Int64Range(0, n-g.Ready).Draw(t, "next")
		g.From = m.now + rapid.Int64Range(0, 50).Draw(t, "from")
		g.Spacing = rapid.Int64Range(1, 20).Draw(t, "spacing")
	}
	m.epoch++
	g.Epoch = m.epoch
	r := &ref{lease: localbucket.NewLease(g), granted: n}
	for k := range n {
		from := m.now
		switch {
		case k < g.Ready:
		case k < g.Ready+g.Next:
			from = g.From
		default:
			from = g.From + (k-g.Ready-g.Next+1)*g.Spacing
		}
		r.tokens = append(r.tokens, token{from, g.Deadline})
	}
	m.refs = append(m.refs, r)
	m.bucket.Add(r.lease)
}

func (m *model) take(t *rapid.T) {
	n := rapid.Int64Range(1, 8).Draw(t, "cost")
	l, left, ok := m.bucket.Take(m.now, n)
	i := slices.IndexFunc(m.refs, func(r *ref) bool { return r.ready(m.now) >= n })
	require.Equal(t, i >= 0, ok)
	if !ok {
		return
	}
	require.Same(t, m.refs[i].lease, l, "the oldest that covers it")
	m.refs[i].take(n)
	require.Equal(t, m.refs[i].ready(m.now), left)
}

func (m *model) split(t *rapid.T) {
	n := rapid.Int64Range(1, 20).Draw(t, "cost")
	all := int64(0)
	for _, r := range m.refs {
		all += r.ready(m.now)
	}
	require.Equal(t, all >= n, m.bucket.Split(m.now, n))
	if all < n {
		return
	}
	for _, r := range m.refs {
		k := min(n, r.ready(m.now))
		r.take(k)
		n -= k
	}
}

func (m *model) undo(t *rapid.T) {
	all := slices.Concat(m.refs, m.gone)
	if len(all) == 0 {
		t.Skip("no lease")
	}
	r := rapid.SampledFrom(all).Draw(t, "lease")
	if r.taken == 0 {
		t.Skip("nothing taken")
	}
	n := rapid.Int64Range(1, r.taken).Draw(t, "back")
	require.Equal(t, !r.closed, r.lease.Undo(n))
	if r.closed {
		return
	}
	// What comes back was ready: it goes before what is left.
	until := r.lease.Deadline()
	r.tokens = append(slices.Repeat([]token{{0, until}}, int(n)), r.tokens...)
	r.taken -= n
}

func (m *model) remove(t *rapid.T) {
	gone := m.bucket.Remove(func(l *localbucket.Lease) bool { return l.Left() == 0 || m.now >= l.Deadline() })
	var want []*localbucket.Lease
	m.refs = slices.DeleteFunc(m.refs, func(r *ref) bool {
		dead := len(r.tokens) == 0 || m.now >= r.lease.Deadline()
		if dead {
			want, m.gone = append(want, r.lease), append(m.gone, r)
		}
		return dead
	})
	require.Equal(t, want, gone)
}

func (m *model) close(t *rapid.T) {
	all := slices.Concat(m.refs, m.gone)
	if len(all) == 0 {
		t.Skip("no lease")
	}
	r := rapid.SampledFrom(all).Draw(t, "lease")
	if r.closed {
		t.Skip("closed")
	}
	unspent, spent := r.lease.Close()
	require.Equal(t, int64(len(r.tokens)), unspent)
	require.Equal(t, r.granted, unspent+spent)
	r.closed, r.tokens = true, nil
}

func (m *model) advance(t *rapid.T) { m.now += rapid.Int64Range(0, 60).Draw(t, "time") }

// check is what must hold after every operation.
func (m *model) check(t *rapid.T) {
	var left, ready int64
	state := ""
	for i, r := range m.refs {
		n := int64(len(r.tokens))
		require.Equal(t, n, r.lease.Left())
		require.Equal(t, r.ready(m.now), r.lease.Available(m.now))
		ready += r.ready(m.now)
		if m.now < r.lease.Deadline() {
			left += n
		}
		if i > 0 {
			state += " "
		}
		state += fmt.Sprintf("%d:%d/%d", r.lease.Epoch(), n, r.granted)
	}
	require.Equal(t, state, m.bucket.String())
	require.Equal(t, left, m.bucket.Left(m.now))
	require.Equal(t, ready, m.bucket.Available(m.now))
	for n := range int64(14) {
		at, ok := m.bucket.When(m.now, n+1)
		want, has := m.when(n + 1)
		require.Equal(t, has, ok, "when %d", n+1)
		if has {
			require.Equal(t, want, at, "when %d", n+1)
		}
	}
}

func (m *model) when(n int64) (at int64, ok bool) {
	for _, r := range m.refs {
		if int64(len(r.tokens)) < n || r.lease.Deadline() <= m.now {
			continue
		}
		from := max(m.now, r.tokens[n-1].from)
		if from < r.tokens[n-1].until && (!ok || from < at) {
			at, ok = from, true
		}
	}
	return at, ok
}

// TestModel drives a bucket and lists of tokens with the same random operations. rapid prints the seed of a failure.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m model
		t.Repeat(map[string]func(*rapid.T){
			"add": m.add, "take": m.take, "split": m.split, "undo": m.undo,
			"remove": m.remove, "close": m.close, "advance": m.advance, "": m.check,
		})
	})
}

// TestArmFiresAtTheMark spends leases one by one, oldest first, and demands that the mark fires at exactly the moment when
// low tokens are left in all, or at the first spend if there are fewer already.
func TestArmFiresAtTheMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b localbucket.Bucket
		all := int64(0)
		for i, n := range rapid.SliceOfN(rapid.Int64Range(1, 10), 1, 5).Draw(t, "leases") {
			b.Add(localbucket.NewLease(localbucket.Grant{Epoch: int64(i), Tokens: n, Ready: n, Deadline: 10}))
			all += n
		}
		low := rapid.Int64Range(0, 60).Draw(t, "low")
		b.Arm(low)
		fired := int64(-1)
		for {
			l, left, ok := b.Take(0, 1)
			if !ok {
				break
			}
			if all--; l.Low(left) {
				require.Equal(t, int64(-1), fired, "fired twice")
				fired = all
			}
			if fired < 0 {
				require.Greater(t, all, low, "did not fire")
			}
		}
		require.GreaterOrEqual(t, fired, int64(0))
	})
}
