package model

import (
	"cmp"
	"fmt"
	"strings"
)

// Violations that only [Judge] can find. The model cannot have them: there a commit moves positions by one
// compare-and-set, and rows are sets.
const (
	movedElsewhere = "a commit moves a position from a value that the table does not have"
	movedBack      = "a position moves back without an operator"
	withoutStart   = "a commit moves a position that no initial commit has set"
	startElsewhere = "the initial position is not the configured one"
	outOfOrder     = "rows of a partition are out of order"
	unknownSource  = "a partition without a source"
)

// perRule is the maximum number of violations of one rule that Judge returns one by one; it counts the others.
const perRule = 10

// Judge checks a history against the rules of the model. It returns the violations in the order of versions, nil if
// there are none. It checks every prefix of the log, as a reader at that time would see it. It does not check that all
// records were committed: the caller must compare the last positions with the ends of the partitions.
func Judge(h History) []string {
	j := judge{told: map[string]int{}, at: map[Partition]*account{}}
	for _, s := range h.Sources {
		a := &account{records: s.Records, letters: map[int64]int64{}, want: s.Start, txn: s.Position, start: s.Position}
		a.last, a.checked = a.start-1, a.start
		a.rows = map[int64]bool{}
		j.at[s.Partition] = a
	}
	for _, l := range h.Letters {
		a := j.account(l.Partition)
		if before, known := a.letters[l.Offset]; !known || l.Before < before {
			a.letters[l.Offset] = l.Before
		}
	}
	for i, v := range h.Versions {
		if i == 0 {
			j.newest, j.table = h.First-1, cmp.Or(h.Table, v.Table)
		}
		j.version(v)
	}
	for _, rule := range j.rules {
		if n := j.told[rule] - perRule; n > 0 {
			j.found = append(j.found, fmt.Sprintf("… and %d more: %s", n, rule))
		}
	}
	return j.found
}

// account is what the judge knows of a partition so far.
type account struct {
	records map[int64]Kind
	letters map[int64]int64 // offset to Letter.Before
	want    int64           // Source.Start
	start   int64           // position from which each record must have its row
	txn     int64           // the table's position
	rows    map[int64]bool  // offsets with a row, since start
	last    int64           // offset of the last row
	checked int64           // first offset whose row or letter is not checked yet
}

// restart sets the position of a partition and forgets its rows: records from there on must have rows again.
func (a *account) restart(at int64) {
	a.start, a.txn, a.last, a.checked = at, at, at-1, at
	clear(a.rows)
}

// kind returns the kind of an offset, Control if no record was produced there.
func (a *account) kind(offset int64) Kind {
	if k, produced := a.records[offset]; produced {
		return k
	}
	return Control
}

type judge struct {
	at       map[Partition]*account
	newest   int64
	table    string
	replaced bool // the table was replaced, and no operator has accepted the new one
	found    []string
	told     map[string]int // number of violations by rule
	rules    []string       // broken rules, in the order of their first violation
}

// tell adds a violation of a rule by version v. Once the rule has perRule violations, tell only counts it.
func (j *judge) tell(v Version, rule, detail string, args ...any) {
	if j.told[rule]++; j.told[rule] == 1 {
		j.rules = append(j.rules, rule)
	}
	if j.told[rule] > perRule {
		return
	}
	by := ""
	if v.Member != "" {
		by = " by " + v.Member
	}
	s := fmt.Sprintf("version %d%s: %s", v.Number, by, rule)
	if detail != "" {
		s += ": " + fmt.Sprintf(detail, args...)
	}
	j.found = append(j.found, s)
}

// account returns the account of a partition, creating it if needed.
func (j *judge) account(p Partition) *account {
	a := j.at[p]
	if a == nil {
		a = &account{letters: map[int64]int64{}, rows: map[int64]bool{}, want: AtStart, start: AtStart, txn: AtStart}
		j.at[p] = a
	}
	return a
}

// version checks a version and applies it.
func (j *judge) version(v Version) {
	switch {
	case v.Number <= j.newest:
		j.tell(v, writtenTwice, "the newest one was %d", j.newest)
		return // readers see only one of the two, so the content of this one is not applied
	case v.Number > j.newest+1:
		j.tell(v, prefixHole, "the newest one was %d", j.newest)
	}
	j.newest = v.Number
	if v.Table != j.table {
		j.table, j.replaced = v.Table, true
		for _, a := range j.at {
			a.restart(a.txn)
		}
	}
	if v.Operator && v.Accepts {
		j.replaced = false
	}
	if v.Unreadable > 0 {
		j.tell(v, fileDeleted, "%d adds", v.Unreadable)
	}
	if j.replaced && !v.Operator && len(v.Txns)+len(v.Rows) > 0 {
		j.tell(v, notAccepted, "table %s", v.Table)
	}
	for _, t := range v.Txns {
		j.move(v, t)
	}
	if j.replaced {
		return // rows of a replaced table are not checked until an operator accepts it
	}
	for _, r := range v.Rows {
		j.row(v, r)
	}
	for _, t := range v.Txns {
		j.passed(v, t.Partition)
	}
}

// move checks and applies one position.
func (j *judge) move(v Version, t Txn) {
	a := j.account(t.Partition)
	if a.records == nil {
		j.tell(v, unknownSource, "%v", t.Partition)
	}
	switch {
	case v.Operator:
		a.restart(t.Next)
		return
	case t.From == AtStart:
		if past, ok := j.history(t.Partition); ok {
			j.tell(v, overAHistory, "%v, the table knows %v", t.Partition, past)
		}
		if a.want != AtStart && t.Next != a.want {
			j.tell(v, startElsewhere, "%v: %d instead of %d", t.Partition, t.Next, a.want)
		}
		a.restart(t.Next)
		return
	case a.txn == AtStart:
		j.tell(v, withoutStart, "%v", t.Partition)
		a.restart(max(t.From, 0))
	case t.From != NotRecorded && t.From != a.txn:
		j.tell(v, movedElsewhere, "%v: from %d, the table was at %d", t.Partition, t.From, a.txn)
	}
	if t.Next < a.txn {
		j.tell(v, movedBack, "%v: from %d to %d", t.Partition, a.txn, t.Next)
		if a.rows[a.last] && a.last >= t.Next {
			j.tell(v, strangeRow, "%v@%d, [start, txn) is [%d, %d)", t.Partition, a.last, a.start, t.Next)
		}
	}
	a.txn = t.Next
}

// history returns a partition whose position forbids an initial commit of p: p itself, or one of p's topic with another
// topic id. It returns false if the table has no such position.
func (j *judge) history(p Partition) (Partition, bool) {
	for q, a := range j.at {
		if a.txn != AtStart && (q == p || q.Topic == p.Topic && q.TopicID != p.TopicID) {
			return q, true
		}
	}
	return p, false
}

// row checks and adds one row. The caller has already applied the positions of the row's version.
func (j *judge) row(v Version, r RowAt) {
	a := j.account(r.Partition)
	switch {
	case a.rows[r.Offset]:
		j.tell(v, twoRows, "%v@%d", r.Partition, r.Offset)
		return
	case r.Offset < a.start || r.Offset >= a.txn || a.kind(r.Offset) != Row:
		j.tell(v, strangeRow, "%v@%d, [start, txn) is [%d, %d)", r.Partition, r.Offset, a.start, a.txn)
	case r.Offset < a.last:
		j.tell(v, outOfOrder, "%v@%d after @%d", r.Partition, r.Offset, a.last)
	}
	a.rows[r.Offset] = true
	a.last = max(a.last, r.Offset)
}

// passed checks that each offset that the position of p has newly passed has its row or its letter.
func (j *judge) passed(v Version, p Partition) {
	a := j.account(p)
	for ; a.checked < a.txn; a.checked++ {
		switch a.kind(a.checked) {
		case Row:
			if !a.rows[a.checked] {
				j.tell(v, missingRow, "%v@%d", p, a.checked)
			}
		case Poison:
			if before, durable := a.letters[a.checked]; !durable || before > v.Number {
				j.tell(v, missingLetter, "%v@%d", p, a.checked)
			}
		case Dropped, Control:
		}
	}
}

// breaks reports whether violation, a text that [Judge] returned, is a violation of the rule with this text.
func breaks(violation, rule string) bool { return strings.Contains(violation, ": "+rule) }
