// Package liveness decides whether the process still works, or should be restarted, and says so: to a probe over HTTP,
// in a file for probes that run a command, in the log. docs/liveness.md says the same for people.
//
// A loop with work that waits for nobody outside and has not turned for [Stalled] is stalled, and then the process is not
// alive. Lag, Kafka, the store, databases and what operators hold never count: a restart mends none of them.
//
//	loop           works                                 waits on purpose                     turns
//	reader         while it acts on what came            (its group offsets, while it drains) each time something came, twice a second at least
//	lane N         while it decodes a block or closes    never                                with each block (1000 records, 1 MiB)
//	writer TABLE   from a cut, resume or look taken      the store, Kafka, dead letters, the  with each row group encoded and whenever
//	               to its outcome                        database of fingerprints, an open    a wait ends
//	                                                     breaker, a pause between attempts,
//	                                                     a share to encode with
//	filling TABLE  while it reads fingerprints back      the store, the database, its turn    with the rows of each piece of a file
//	offsets        while it writes group offsets         Kafka                                with each write
//	fetcher N      from a request to its last record     Kafka, the fetch pool                with each partition of a response
//	               batch opened
//
// What is handed over between loops is no wait on purpose: whoever waits for another loop stands still with it, and both
// are named. Membership of the group is no loop: all it does is wait for Kafka.
package liveness

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/reliability/pulse"
)

const (
	// Stalled is how long a loop with work may stand still before a restart is the better choice.
	Stalled = time.Minute
	// Every is how often somebody should look.
	Every = time.Second
	// missed is what a look counts for at most, however late it comes.
	missed = 2 * Every
)

// A Watch looks at loops again and again. It counts the time in which it looked itself: while the whole process did not
// run (a stopped container, a virtual machine that moves, a laptop that sleeps) nothing can be said of its loops, and
// none of them is stalled for it.
type Watch struct {
	mu      sync.Mutex
	checked time.Time     // zero before the first look
	ran     time.Duration // counted so far
	seen    map[uint64]seen
}

// seen is when a loop was last seen to turn, or without a need to.
type seen struct {
	turns uint64
	at    time.Duration // of ran
}

// Stall is a loop that does not turn.
type Stall struct {
	Loop string
	For  time.Duration
}

// Check returns the loops that are stalled now, the longest first. now needs a monotonic reading.
func (w *Watch) Check(now time.Time, loops []pulse.State) (stalls []Stall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.checked.IsZero() {
		w.ran += min(max(now.Sub(w.checked), 0), missed)
	}
	w.checked = now
	before := w.seen
	w.seen = make(map[uint64]seen, len(loops))
	for _, l := range loops {
		s, known := before[l.ID]
		if !known || !l.Working || l.Waiting || l.Turns != s.turns {
			s = seen{l.Turns, w.ran}
		}
		w.seen[l.ID] = s
		if still := w.ran - s.at; still >= Stalled {
			stalls = append(stalls, Stall{l.Name, still})
		}
	}
	slices.SortStableFunc(stalls, func(a, b Stall) int { return cmp.Compare(b.For, a.For) })
	return stalls
}

// reason says in a sentence why the process is not alive; nil if it is.
func reason(stalls []Stall) error {
	if len(stalls) == 0 {
		return nil
	}
	var others []string
	for _, s := range stalls[1:] {
		others = append(others, s.Loop)
	}
	said := fmt.Sprintf("loop %s has work and has not turned for %s", stalls[0].Loop, stalls[0].For.Round(time.Second))
	if len(others) > 0 {
		said += "; nor has " + strings.Join(others, ", ")
	}
	return errors.New(said)
}
