package judge

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Overshoot is by how many tokens the allowed calls were at least above the limit, in the window where they were the most: the
// peak of a meter that every admission raises by 1 and that drains at the refill rate, never below 0, less the capacity;
// 0 if it stayed below.
//
// The meter needs a moment for each admission, and all that is known of it is that it lies between Start and End. Neither of
// them will do. Starts bunch the calls that were made together and waited for the store until it had refilled; ends bunch the
// calls that it had decided on earlier, one after the other, and whose answers came together. Both can show an overshoot that
// there was none of. So a call counts to a window only if all of it, from Start to End, lies inside:
//
//	max over windows [a, b] of  calls inside - rate*(b-a) - capacity
//
// Wherever the decisions fell, the meter got as high as that: an overshoot that is found here is proved, in the placement that
// is most favourable to the limiter. What is lost for it is no more than the calls that were in flight at the ends of a
// window, and calls that spend from a lease are in flight for a microsecond.
func Overshoot(calls []Call, l Limit) float64 {
	allowed := make([]Call, 0, len(calls))
	for _, c := range calls {
		if c.Allowed {
			allowed = append(allowed, c)
		}
	}
	slices.SortFunc(allowed, func(a, b Call) int { return cmp.Compare(a.End, b.End) })
	byStart := make([]int, len(allowed)) // indices of allowed, the latest start first
	for i := range byStart {
		byStart[i] = i
	}
	slices.SortFunc(byStart, func(i, j int) int { return cmp.Compare(allowed[j].Start, allowed[i].Start) })

	// The best window from a on, for a from the last start back to the first. The tree has the calls that start at a or
	// later in the order of their ends, so those inside [a, b] are the ones up to b.
	most := math.Inf(-1)
	inside := newTree(len(allowed))
	for _, i := range byStart {
		c := allowed[i]
		inside.add(i, -l.Rate*float64(c.End))
		most = max(most, inside.best()+l.Rate*float64(c.Start))
	}
	return max(0, most-float64(l.Capacity))
}

// tree is a segment tree over calls in the order of their ends. It answers with the maximum, over the calls that were added, of
// the number of calls up to it plus its weight.
type tree struct {
	leaves int
	count  []int
	most   []float64
}

func newTree(n int) *tree {
	leaves := 1 << bits.Len(uint(max(0, n-1)))
	t := &tree{leaves: leaves, count: make([]int, 2*leaves), most: make([]float64, 2*leaves)}
	for i := range t.most {
		t.most[i] = math.Inf(-1)
	}
	return t
}

func (t *tree) add(i int, weight float64) {
	i += t.leaves
	t.count[i], t.most[i] = 1, 1+weight
	for i /= 2; i >= 1; i /= 2 {
		left, right := 2*i, 2*i+1
		t.count[i] = t.count[left] + t.count[right]
		t.most[i] = max(t.most[left], float64(t.count[left])+t.most[right])
	}
}

func (t *tree) best() float64 { return t.most[1] }
