// Package pulse records what the loops of a process do: whether each has work, waits on purpose, or makes progress. It
// does not judge; package sluice/health/liveness does.
//
// A loop reports its own state. It calls [Loop.Work] when it takes up work, [Loop.Turn] when a part of it is done, and
// [Loop.Rest] before it waits for more. It calls [Loop.Wait] and [Loop.Done] around a wait for a dependency, a pool or the
// clock. Each call costs a few atomic operations, and no loop makes one for a single record. A nil Loop does nothing.
//
// Functions that a loop calls find the loop in the context. So a guard deep below can report that the loop waits.
package pulse

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Loops holds the running loops of a process. The zero value is empty and ready to use. With a nil Loops, all loops are nil.
type Loops struct {
	mu     sync.Mutex
	newest uint64
	all    map[*Loop]struct{}
}

// Begin adds a loop with the given name, which rests at first. The caller must call [Loop.End] when the loop ends.
func (l *Loops) Begin(name string) *Loop {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest++
	loop := &Loop{of: l, id: l.newest, name: name}
	if l.all == nil {
		l.all = map[*Loop]struct{}{}
	}
	l.all[loop] = struct{}{}
	return loop
}

// State is the state of a loop at one moment.
type State struct {
	ID      uint64 // unique in the process
	Name    string
	Working bool   // the loop has work
	Waiting bool   // the loop waits on purpose for something outside the process's loops
	Turns   uint64 // number of turns so far; it never decreases
}

// States returns the states of all loops, in the order in which the loops began.
func (l *Loops) States() []State {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]State, 0, len(l.all))
	for loop := range l.all {
		// The waits are read before the turns: if a wait ends in between, its turn is seen, too.
		waiting := loop.waits.Load() > 0
		all = append(all, State{ID: loop.id, Name: loop.name, Working: loop.working.Load(), Waiting: waiting, Turns: loop.turns.Load()})
	}
	slices.SortFunc(all, func(a, b State) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Loop is a goroutine that must make progress while it has work. Any goroutine that works for the loop may call its
// methods.
type Loop struct {
	of   *Loops
	id   uint64
	name string

	working atomic.Bool
	waits   atomic.Int32
	turns   atomic.Uint64
}

// Work reports that the loop has work from now on. It counts as a turn.
func (l *Loop) Work() {
	if l != nil {
		l.turns.Add(1)
		l.working.Store(true)
	}
}

// Turn reports that the loop has done a part of its work.
func (l *Loop) Turn() {
	if l != nil {
		l.turns.Add(1)
	}
}

// Rest reports that the loop has no work until the next [Loop.Work].
func (l *Loop) Rest() {
	if l != nil {
		l.working.Store(false)
	}
}

// Wait reports that the loop waits on purpose, until [Loop.Done] has been called as often as Wait. Do not call it for a
// wait for another loop of the process: if that loop hangs, this wait must not hide it.
func (l *Loop) Wait() {
	if l != nil {
		l.waits.Add(1)
	}
}

// Done ends a [Loop.Wait].
func (l *Loop) Done() {
	if l != nil {
		l.turns.Add(1)
		l.waits.Add(-1)
	}
}

// End removes the loop from [Loops.States].
func (l *Loop) End() {
	if l == nil {
		return
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	delete(l.of.all, l)
}

type key struct{}

// With returns a context that carries the loop l, for the functions that it calls.
func With(ctx context.Context, l *Loop) context.Context { return context.WithValue(ctx, key{}, l) }

// Of returns the loop that ctx carries, or nil, whose methods do nothing.
func Of(ctx context.Context) *Loop {
	l, _ := ctx.Value(key{}).(*Loop)
	return l
}
