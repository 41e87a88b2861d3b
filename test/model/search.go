package model

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// Step is a step of a machine.
type Step struct {
	What   string
	Member int8  // index of the member that takes it; -1 if no member does
	About  int8  // claim or offset; -1: none
	Calm   uint8 // 0 for a fault, otherwise a rank: a run without faults takes the possible step with the lowest rank
}

func (l Step) String() string {
	s := l.What
	if l.Member >= 0 {
		s = string('A'+rune(l.Member)) + ": " + s
	}
	if l.About >= 0 {
		s += fmt.Sprint(" ", l.About)
	}
	return s
}

// Result is the result of a search.
type Result struct {
	States, Steps, Depth int
	Bad                  string   // the violation; empty if no reachable state has one
	Trace                []string // the steps of the shortest run that ends in the violation
	Exhausted            bool     // whether every reachable state was visited; false if the limit ended the search
}

func (r Result) String() string {
	s := fmt.Sprintf("%8d states %9d steps depth %2d", r.States, r.Steps, r.Depth)
	if r.Bad != "" {
		s += "\n        " + r.Bad + "\n        " + strings.Join(r.Trace, " · ")
	}
	return s
}

// node is a visited state. To save memory it keeps only how the search reached the state, not the state itself.
type node struct {
	parent int32
	calm   int32 // the next node of a run without faults, nowhere or arrived
	by     Step  // the step from parent
}

const (
	nowhere = -1 // the state has no step without a fault
	arrived = -2 // the state is an end, or a run without faults from it reaches one
)

// Machine is a state machine whose states [Search] visits.
type Machine[S comparable] interface {
	// Init returns the initial state.
	Init() S
	// Next calls emit for every possible step.
	Next(s S, emit func(Step, S))
	// Bad returns the rule that the state breaks, "" if none.
	Bad(s S) string
	// Done reports whether the state is one at which a run without faults ends: nothing is left to do.
	Done(s S) bool
	// Same returns the state with its two members exchanged. Search visits only one of the two.
	Same(s S) S
}

// Search visits every state that w can reach and stops at the first violation, or once it has seen more than limit
// states. If it finds no violation it also checks that steps without faults lead from each state to one that is Done.
// States that differ only by the exchange of the two members count as one.
func Search[S comparable](w Machine[S], limit int) (r Result) {
	seed := maphash.MakeSeed()
	key := func(s S) uint64 { return min(maphash.Comparable(seed, s), maphash.Comparable(seed, w.Same(s))) }
	seen := map[uint64]int32{key(w.Init()): 0}
	nodes := []node{{parent: -1, calm: nowhere}}
	fail := func(why string, id int32) {
		for r.Bad = why; id > 0; id = nodes[id].parent {
			r.Trace = append([]string{nodes[id].by.String()}, r.Trace...)
		}
	}
	for level := []S{w.Init()}; len(level) > 0 && r.Bad == ""; r.Depth++ {
		first := int32(len(nodes) - len(level))
		var next []S
		for i, s := range level {
			id, best := first+int32(i), uint8(255)
			w.Next(s, func(l Step, t S) {
				r.Steps++
				k := key(t)
				to, old := seen[k]
				if !old {
					to = int32(len(nodes))
					seen[k], nodes, next = to, append(nodes, node{parent: id, calm: nowhere, by: l}), append(next, t)
					if bad := w.Bad(t); bad != "" && r.Bad == "" {
						fail(bad, to)
					}
				}
				if l.Calm > 0 && l.Calm < best && to != id {
					best, nodes[id].calm = l.Calm, to
				}
			})
			if w.Done(s) {
				nodes[id].calm = arrived
			}
			if len(nodes) > limit {
				r.States = len(nodes)
				return r
			}
			if r.Bad != "" {
				break
			}
		}
		level = next
	}
	r.States, r.Exhausted = len(nodes), r.Bad == ""
	if id := stuck(nodes); r.Exhausted && id >= 0 {
		fail(neverEnds, id)
	}
	return r
}

// stuck follows from each state the steps without faults. It returns a state from which they never reach the end, -1 if
// there is none. It changes nodes.
func stuck(nodes []node) int32 {
	seen := make([]bool, len(nodes))
	for i := range nodes {
		var path []int32
		at := int32(i)
		for ; !seen[at] && nodes[at].calm >= 0; at = nodes[at].calm {
			seen[at], path = true, append(path, at)
		}
		if nodes[at].calm != arrived {
			return int32(i)
		}
		for _, p := range path {
			nodes[p].calm = arrived
		}
	}
	return -1
}
