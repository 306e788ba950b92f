package leaselimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// named makes tenants that nothing is drawn for.
func named() func(name string) *tenant {
	pool := lease.NewPool(nil, lease.Options{})
	return func(name string) *tenant {
		t := new(tenant)
		pool.Init(&t.holder, name, quota.PerSecond(1, 1))
		return t
	}
}

// A table is a map, however it has grown and shrunk.
func TestTableIsAMap(t *testing.T) {
	tenantOf := named()
	rapid.Check(t, func(t *rapid.T) {
		var b table
		b.init()
		model := map[string]*tenant{}
		names := rapid.SampledFrom(func() (all []string) {
			for i := range rapid.IntRange(1, 200).Draw(t, "names") {
				all = append(all, fmt.Sprint(i))
			}
			return all
		}())
		for range rapid.IntRange(0, 600).Draw(t, "steps") {
			name := names.Draw(t, "name")
			if old := model[name]; old == nil {
				model[name] = tenantOf(name)
				b.put(model[name])
			} else {
				b.remove(old)
				delete(model, name)
			}
			if got := b.load(name); got != model[name] {
				t.Fatalf("load(%q) = %p, want %p", name, got, model[name])
			}
		}
		for name, want := range model {
			if got := b.load(name); got != want {
				t.Fatalf("load(%q) = %p, want %p", name, got, want)
			}
		}
		n := 0
		for range b.all {
			n++
		}
		if n != len(model) || b.count != n {
			t.Fatalf("%d tenants, counted as %d, want %d", n, b.count, len(model))
		}
	})
}

// Names whose hashes are the same in all that a table looks at are told apart.
func TestTableTellsTagsApart(t *testing.T) {
	tenantOf := named()
	var b table
	b.init()
	for i := range 5 * maxLoad { // in one group
		b.insert(*b.groups.Load(), tenantOf(fmt.Sprint(i)))
	}
	for i := range 5 * maxLoad {
		require.NotNil(t, b.load(fmt.Sprint(i)))
		require.Equal(t, fmt.Sprint(i), b.load(fmt.Sprint(i)).name())
	}
	assert.Nil(t, b.load("none"))
}

// Who is in the table all the while is found all the while.
func TestTableFindsWhileItChanges(t *testing.T) {
	tenantOf := named()
	var b table
	b.init()
	const stay, come = 50, 2000
	for i := range stay {
		b.put(tenantOf(fmt.Sprint("stays", i)))
	}
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for i := 0; !done.Load(); i++ {
				name := fmt.Sprint("stays", i%stay)
				if got := b.load(name); got == nil || got.name() != name {
					t.Errorf("load(%q) = %v", name, got)
					return
				}
				if got := b.load(fmt.Sprint("comes", i%come)); got != nil && got.name() != fmt.Sprint("comes", i%come) {
					t.Errorf("found %q", got.name())
				}
			}
		})
	}
	for range 20 {
		var came []*tenant
		for i := range come {
			came = append(came, tenantOf(fmt.Sprint("comes", i)))
			b.put(came[i])
		}
		for _, c := range came {
			b.remove(c)
		}
	}
	done.Store(true)
	readers.Wait()
	assert.Equal(t, stay, b.count)
	assert.LessOrEqual(t, len(*b.groups.Load()), 64, "it shrinks")
}

// What a lookup and a call from memory look at are whole cache lines, if the allocator puts them at multiples of 64 bytes, as it
// does with these sizes.
func TestWholeCacheLines(t *testing.T) {
	assert.Equal(t, uintptr(64), unsafe.Sizeof(group{}))
	assert.Equal(t, uintptr(192), unsafe.Sizeof(tenant{}))
}
