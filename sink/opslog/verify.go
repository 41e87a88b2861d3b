package opslog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Report is what [Log.Verify] found.
type Report struct {
	Entries  int64     `json:"entries"`  // that can be read as such
	Head     Head      `json:"head"`     // the newest of them
	Findings []Finding `json:"findings"` // by seq; empty if the log is what was written
}

// Finding is one thing that is wrong.
type Finding struct {
	Seq int64  `json:"seq,omitempty"` // of the bad entry, the first one of several missing; 0 if it is about another object
	Key string `json:"key,omitempty"` // of an object that does not belong there
	Why string `json:"why"`
}

// Verify reads the whole log and recomputes its chain: it finds entries that were changed, written anew or taken away, and
// objects that do not belong there. An end that was cut off, and a newest entry that was written anew with its sum, can
// only be found with a head that somebody kept: pinned, or the zero Head. The error is the store's.
func (l *Log) Verify(ctx context.Context, pinned Head) (Report, error) {
	found, err := l.list(ctx, 0)
	if err != nil {
		return Report{}, fmt.Errorf("list the operations log: %w", err)
	}
	var all []seen
	for first, last := range found.runs() {
		err := l.readAll(ctx, first, last, func(seq int64, object []byte) error {
			all = append(all, look(seq, object))
			return nil
		})
		if err != nil {
			return Report{}, fmt.Errorf("read the operations log: %w", err)
		}
	}
	r := judge(all, pinned)
	for _, key := range found.foreign {
		r.Findings = append(r.Findings, Finding{Key: key, Why: "it is no entry and does not belong there"})
	}
	if found.more > 0 {
		r.Findings = append(r.Findings, Finding{Key: l.dir, Why: fmt.Sprintf("%d more objects are no entries and do not belong there", found.more)})
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Seq, b.Seq) })
	return r, nil
}

// seen is what the chain needs to know of an object.
type seen struct {
	seq        int64
	prev, hash string
	bad        string // why it is no entry of this seq, "" if it is
}

func look(seq int64, object []byte) seen {
	if object == nil {
		return seen{seq: seq, bad: "it was taken away just now"}
	}
	e, err := parse(object)
	switch {
	case err != nil:
		return seen{seq: seq, bad: err.Error()}
	case e.Seq != seq:
		return seen{seq: seq, bad: fmt.Sprintf("it says that it is seq %d", e.Seq)}
	}
	return seen{seq: seq, prev: e.Prev, hash: e.hash}
}

// missing says that seqs [first, last] are not there.
func missing(first, last int64) string {
	if first == last {
		return "it is missing"
	}
	return fmt.Sprintf("it is missing, and so are all up to seq %d", last)
}

// judge recomputes the chain of objects that are given by seq.
func judge(all []seen, pinned Head) Report {
	r := Report{Findings: []Finding{}}
	add := func(seq int64, format string, args ...any) {
		r.Findings = append(r.Findings, Finding{Seq: seq, Why: fmt.Sprintf(format, args...)})
	}
	// parts tells whether entry i and the one before it are both there and do not fit together.
	parts := func(i int) bool {
		return i > 0 && i < len(all) && all[i-1].bad == "" && all[i].bad == "" && all[i-1].seq+1 == all[i].seq && all[i].prev != all[i-1].hash
	}
	last := int64(0)
	for i, e := range all {
		if e.seq > last+1 {
			add(last+1, "%s", missing(last+1, e.seq-1))
		}
		last = e.seq
		if e.bad != "" {
			add(e.seq, "%s", e.bad)
			continue
		}
		r.Entries++
		r.Head = Head{e.seq, e.hash}
		// Of two entries that do not fit together one was written anew: the later one if it does not fit its other
		// neighbor either.
		switch {
		case parts(i) && parts(i+1):
			add(e.seq, "it was written anew: it fits neither the entry before nor the one behind")
		case parts(i+1) && !parts(i+2):
			add(e.seq, "it was written anew: seq %d names another hash", e.seq+1)
		case pinned.Seq == e.seq && pinned.Hash != e.hash:
			add(e.seq, "it was written anew: the hash that was kept is another")
		}
	}
	if pinned.Seq > last {
		add(last+1, "the end of the log was cut off: seq %d was there", pinned.Seq)
	}
	return r
}
