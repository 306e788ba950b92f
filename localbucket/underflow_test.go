package localbucket

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Spends of one token that meet an exhaustion at the same time leave the counter below 0. It must mean no more than 0.
func TestUnderflowIsExhaustion(t *testing.T) {
	l := NewLease(Grant{Tokens: 5, Ready: 5, Deadline: 10})
	l.left.Store(-7)
	assert.Zero(t, l.Left())
	assert.Zero(t, l.Available(0))
	assert.Equal(t, int64(5), l.Spent())
	_, ok := l.Take(0, 1)
	assert.False(t, ok)
	_, ok = l.Take(0, 2)
	assert.False(t, ok)
	assert.Zero(t, l.TakeUpTo(0, 2))
	at, ok := l.When(0, 1)
	assert.False(t, ok, "ready at %d", at)

	assert.True(t, l.Undo(2), "of two that were taken")
	assert.Equal(t, int64(2), l.Left(), "the underflow must not swallow what is put back")
	_, ok = l.Take(0, 2)
	assert.True(t, ok)

	l.left.Store(-7)
	unspent, spent := l.Close()
	assert.Zero(t, unspent)
	assert.Equal(t, int64(5), spent)
}

// Late spends go on counting down a closed lease. It has to stay closed.
func TestLateSpendsDoNotReopenALease(t *testing.T) {
	l := NewLease(Grant{Tokens: 5, Ready: 5, Deadline: 10})
	l.Close()
	l.left.Add(-1 << 40)
	assert.False(t, l.Undo(1))
	assert.Zero(t, l.Left())
	_, ok := l.Take(0, 1)
	assert.False(t, ok)
}
