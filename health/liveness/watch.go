// Package liveness decides whether the process still works or should be restarted. It reports that to a probe over
// HTTP, in a file for probes that run a command, and in the log. docs/liveness.md says the same for operators.
//
// A loop turns whenever it makes progress; the table says when. A loop is stalled if it has work, waits for nothing
// outside of the process and has not turned for [Stalled]. Then the process is not alive. Lag, Kafka, the store,
// databases and holds never count: a restart fixes none of them.
//
//	loop           works                                 waits on purpose                     turns
//	reader         while it handles an event             (committed offsets, while it drains) with each event, twice a second at least
//	lane N         while it decodes a block or closes    never                                with each block (1000 records, 1 MiB)
//	writer TABLE   from a batch, resume or comparison    the store, Kafka, dead letters, the  with each row group encoded and whenever
//	               to its outcome                        database of fingerprints, an open    a wait ends
//	                                                     breaker, a pause between attempts,
//	                                                     a share to encode with
//	filling TABLE  while it reads fingerprints back      the store, the database, its turn    with the rows of each piece of a file
//	offsets        while it commits offsets of the group Kafka                                with each write
//	fetcher N      from a request to its last record     Kafka, the fetch pool                with each partition of a response
//	               batch opened
//
// Waiting for another loop of the process is not excused: both loops are stalled then, and the report names both. The
// group membership is not a loop: it only waits for Kafka.
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
	// Stalled is the time without a turn after which a restart is better than waiting.
	Stalled = time.Minute
	// Every is the interval in which to call [Watch.Check].
	Every = time.Second
	// missed is the most time that one check counts as passed, even if the check before it was longer ago.
	missed = 2 * Every
)

// A Watch checks loops repeatedly. It counts only time in which it ran itself: while the whole process did not run (a
// stopped container, a virtual machine that moves, a laptop that sleeps), no loop counts as stalled.
type Watch struct {
	mu      sync.Mutex
	checked time.Time     // zero before the first check
	ran     time.Duration // the time that checks have counted so far
	seen    map[uint64]seen
}

// seen is the last check at which a loop had turned, or did not need to.
type seen struct {
	turns uint64
	at    time.Duration // value of ran at that check
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

// reason returns why the process is not alive, nil if it is.
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
