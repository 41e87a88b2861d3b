package model

import "math/rand/v2"

// walk takes at most steps random steps in a world and returns the history of the versions that they wrote. It ends
// early at the first violation and returns its text as bad; without a violation bad is "".
func walk(w World, rng *rand.Rand, steps int) (h History, bad string) {
	r := recorder{w: w, h: History{First: 1, Table: "1"}, letters: map[Letter]bool{}}
	var heard []written
	w.wrote = func(v written) { heard = append(heard, v) }
	for c := range claims {
		if w.Records[c] != "" {
			r.h.Sources = append(r.h.Sources, r.source(c))
		}
	}
	for s := w.Init(); bad == "" && steps > 0; steps-- {
		type choice struct {
			next  State
			heard []written
		}
		var choices []choice
		w.Next(s, func(l Step, t State) {
			for range 1 + 2*min(l.Calm, 1) { // a step that is a fault is a third as likely as another step, or no walk would get far
				choices = append(choices, choice{t, heard})
			}
			heard = nil
		})
		c := choices[rng.IntN(len(choices))]
		s = c.next
		for _, v := range c.heard {
			r.version(v)
		}
		r.sent(s)
		bad = w.Bad(s)
	}
	if bad == fileDeleted {
		r.deleted()
	}
	return r.h, bad
}

// shown reports whether a history can show this violation. It cannot show what a member decided, that a run never ends,
// or that a record is both row and letter, which is allowed.
func shown(bad string) bool {
	return bad != "" && bad != wronglyWon && bad != wronglyLost && bad != neverEnds && bad != twoPlaces
}

// aboutPositions reports whether a violation that Judge returned is about a position. A wrong position is in the
// history before it leads to wrong rows, so the model may not call the state bad yet.
func aboutPositions(violation string) bool {
	return breaks(violation, movedElsewhere) || breaks(violation, movedBack) || breaks(violation, withoutStart)
}

// recorder makes a history of the versions and letters of a walk.
type recorder struct {
	w       World
	h       History
	newest  int64
	letters map[Letter]bool
}

// partition returns the partition of a claim. With World.Generations the claims are one partition under two topic ids.
func (r *recorder) partition(c int) Partition {
	if r.w.Generations {
		return Partition{Topic: "orders", TopicID: string('a' + rune(c))}
	}
	return Partition{Topic: "orders", TopicID: "a", Number: int32(c)}
}

func (r *recorder) source(c int) Source {
	s := Source{Partition: r.partition(c), Start: AtStart, Records: map[int64]Kind{}}
	if r.w.Fresh {
		s.Position = AtStart
	}
	for o, k := range r.w.Records[c] {
		s.Records[int64(o)] = map[rune]Kind{'g': Row, 'd': Dropped, 'p': Poison}[k]
	}
	return s
}

func (r *recorder) version(w written) {
	v := Version{Table: string('0' + rune(w.table)), Operator: w.operator, Accepts: w.accepts, Number: r.newest + int64(w.n)}
	if w.files {
		v.Unreadable = 1
	}
	for c := range claims {
		if w.cut.From[c] == none {
			continue
		}
		p := r.partition(c)
		v.Txns = append(v.Txns, Txn{Partition: p, From: int64(w.cut.From[c]), Next: int64(w.cut.Next[c])})
		for o := range int64(8) {
			if w.cut.Rows[c]&(1<<o) != 0 {
				v.Rows = append(v.Rows, RowAt{p, o})
			}
		}
	}
	r.newest = max(r.newest, v.Number)
	r.h.Versions = append(r.h.Versions, v)
}

// deleted says in the history that a file of the newest commit with rows is missing. The walk calls it at the violation
// fileDeleted: a member has deleted the files of a commit that took effect.
func (r *recorder) deleted() {
	for i := len(r.h.Versions) - 1; i >= 0; i-- {
		if v := &r.h.Versions[i]; v.Unreadable > 0 || len(v.Rows) > 0 {
			v.Unreadable = 1
			return
		}
	}
}

// sent adds the letters that became durable since its last call.
func (r *recorder) sent(s State) {
	for c := range claims {
		for o := range int64(8) {
			l := Letter{Partition: r.partition(c), Offset: o}
			if s.Letters[c]&(1<<o) != 0 && !r.letters[l] {
				r.letters[l] = true
				l.Before = r.newest + 1
				r.h.Letters = append(r.h.Letters, l)
			}
		}
	}
}
