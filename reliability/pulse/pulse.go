// Package pulse shows the state of the loops of a process: whether each has work, whether it waits for a dependency,
// and how often it has turned. Package sluice/health/liveness judges these states.
//
// A loop calls [Loop.Work] when it takes up work, [Loop.Turn] when a part of it is done, [Loop.Rest] before it waits
// for more, and [Loop.Wait] and [Loop.Done] around a wait for a dependency, a pool or the clock. Each call is an atomic
// operation or two; none is needed for a record. A nil Loop does nothing.
//
// Functions that a loop calls find it in the context, so that for example a guard can mark the loop as waiting.
package pulse

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Loops are the running loops of a process. The zero value is empty. Begin on a nil Loops adds nothing and returns a
// nil Loop.
type Loops struct {
	mu     sync.Mutex
	newest uint64
	all    map[*Loop]struct{}
}

// Begin adds a loop, which rests. The goroutine that runs the loop calls [Loop.End].
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
	Working bool   // true if the loop has work
	Waiting bool   // true if the loop waits on purpose for something outside of the loops of the process
	Turns   uint64 // number of turns of the loop so far
}

// States returns the states of all loops, in the order in which they began.
func (l *Loops) States() []State {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]State, 0, len(l.all))
	for loop := range l.all {
		// The waits are read before the turns: Done adds the turn before it ends the wait, so a wait that has ended
		// shows its turn.
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

// Wait marks the loop as waiting on purpose, until [Loop.Done] was called as often as Wait. Do not use it for a wait
// for another loop of the process: if the other loop makes no progress, neither does this one, and the watchdog must
// see that.
func (l *Loop) Wait() {
	if l != nil {
		l.waits.Add(1)
	}
}

// Done ends one [Loop.Wait] and counts as a turn.
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
