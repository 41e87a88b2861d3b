package opslog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Report is the result of [Log.Verify].
type Report struct {
	Entries  int64     `json:"entries"`  // number of objects that could be parsed as entries
	Head     Head      `json:"head"`     // the newest entry that could be parsed
	Findings []Finding `json:"findings"` // sorted by seq; empty if the log is intact
}

// Finding is one defect of the log.
type Finding struct {
	Seq int64  `json:"seq,omitempty"` // seq of the bad entry, or of the first of several missing ones; 0 for a foreign object
	Key string `json:"key,omitempty"` // key of the foreign object
	Why string `json:"why"`
}

// Verify reads the whole log and recomputes its chain. It finds entries that were changed, rewritten or removed, and
// foreign objects. It also compares each [Snapshot] with the state of the entries before it. Only a pinned head reveals two changes: entries cut off at the end, and a newest entry rewritten
// together with its sum. Without one, pass the zero Head. The error is the store's.
func (l *Log) Verify(ctx context.Context, pinned Head) (Report, error) {
	found, err := l.list(ctx, 0)
	if err != nil {
		return Report{}, fmt.Errorf("list the operations log: %w", err)
	}
	var all []seen
	whole, wrong := chain{bucket: l.bucket, state: &State{}}, []Finding(nil)
	for first, last := range found.runs() {
		err := l.readAll(ctx, first, last, func(seq int64, object []byte) error {
			all = append(all, inspect(seq, object))
			e, err := whole.add(seq, object)
			if err != nil {
				return nil //nolint:nilerr // judge reports it, and no state follows from the entries after it
			}
			why, err := l.disagrees(ctx, e, whole.state)
			if why != "" {
				wrong = append(wrong, Finding{Seq: seq, Why: why})
			}
			return err
		})
		if err != nil {
			return Report{}, fmt.Errorf("read the operations log: %w", err)
		}
	}
	r := judge(all, pinned)
	r.Findings = append(r.Findings, wrong...)
	for _, key := range found.foreign {
		r.Findings = append(r.Findings, Finding{Key: key, Why: "it is no entry and does not belong there"})
	}
	if found.more > 0 {
		r.Findings = append(r.Findings, Finding{Key: l.dir, Why: fmt.Sprintf("%d more objects are no entries and do not belong there", found.more)})
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Seq, b.Seq) })
	return r, nil
}

// seen is the part of an object that the check of the chain needs.
type seen struct {
	seq        int64
	prev, hash string
	bad        string // why the object is not an entry of this seq, "" if it is one
}

func inspect(seq int64, object []byte) seen {
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

// missing returns the text of a finding about absent seqs [first, last].
func missing(first, last int64) string {
	if first == last {
		return "it is missing"
	}
	return fmt.Sprintf("it is missing, and so are all up to seq %d", last)
}

// judge recomputes the chain over the objects, which are sorted by seq.
func judge(all []seen, pinned Head) Report {
	r := Report{Findings: []Finding{}}
	add := func(seq int64, format string, args ...any) {
		r.Findings = append(r.Findings, Finding{Seq: seq, Why: fmt.Sprintf(format, args...)})
	}
	// parts reports whether entry i and the entry before it both exist and do not fit together.
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
		// If two neighboring entries do not fit together, one was rewritten: the later one if it does not fit its
		// other neighbor either.
		switch {
		case parts(i) && parts(i+1):
			add(e.seq, "it was written anew: it fits neither the entry before nor the one after it")
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
