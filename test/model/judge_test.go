package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	walks     = 500
	walkSteps = 60
)

// agree takes random walks in a world and compares the verdicts of the model and of [Judge] about each. If the model
// finds a violation that a history can show, Judge must find one, too. If Judge finds a violation that is not about a
// position, so must the model. agree returns in red the number of walks with such violations of the model. early is the
// number of walks in which only Judge found a violation, about a position.
func agree(t *testing.T, w World) (red, early int) {
	t.Helper()
	for seed := range uint64(walks) {
		h, bad := walk(w, rand.New(rand.NewPCG(seed, 1)), walkSteps)
		found := Judge(h)
		rows := slices.ContainsFunc(found, func(v string) bool { return !aboutPositions(v) })
		switch {
		case shown(bad) && !rows:
			t.Fatalf("walk %d: the model says %q, the judge nothing: %+v", seed, bad, h)
		case !shown(bad) && rows:
			t.Fatalf("walk %d: the model says %q, the judge %q: %+v", seed, bad, found, h)
		case shown(bad):
			if red++; !slices.ContainsFunc(found, func(v string) bool { return breaks(v, bad) }) {
				t.Fatalf("walk %d: the model says %q, the judge %q", seed, bad, found)
			}
		case len(found) > 0:
			early++
		}
	}
	return red, early
}

// TestJudge_AgreesWithModel compares Judge with the model on random walks. Walks of the protocol as built must have no
// violation. Of the mutants, which are deviations from the protocol, at least 17 must have a walk with a violation.
func TestJudge_AgreesWithModel(t *testing.T) {
	for name, w := range worlds {
		if name == "Fickle" || w.Expiries > 0 { // a history has one kind for each record, and no txn in it expires
			continue
		}
		t.Run(name, func(t *testing.T) {
			if red, early := agree(t, w); red+early > 0 {
				t.Errorf("%d walks red, %d early", red, early)
			}
		})
	}
	caught := 0
	for name, m := range mutants {
		if name == "OnePlace" || m.in.Expiries > 0 { // Judge allows what OnePlace forbids, and no txn of a history expires
			continue
		}
		t.Run(name, func(t *testing.T) {
			red, early := agree(t, with(m.in, m.rule))
			t.Logf("%d of %d walks red, %d about positions only", red, walks, early)
			if red > 0 {
				caught++
			}
		})
	}
	// The other mutants break what a history cannot show, or need a long sequence of steps that random walks rarely take.
	if caught < 17 {
		t.Errorf("random walks show only %d mutants", caught)
	}
}

var (
	p0 = Partition{Topic: "orders", TopicID: "a"}
	p1 = Partition{Topic: "orders", TopicID: "a", Number: 1}
	q0 = Partition{Topic: "orders", TopicID: "b"}
)

// good is a history without violations, in which a small change can break any rule.
func good() History {
	return History{
		Sources: []Source{
			{Partition: p0, Start: 0, Position: AtStart, Records: map[int64]Kind{0: Row, 1: Row, 2: Poison, 3: Row, 4: Dropped, 6: Row}},
			{Partition: p1, Start: AtStart, Position: AtStart, Records: map[int64]Kind{100: Row, 101: Row}},
			{Partition: q0, Start: AtStart, Position: AtStart, Records: map[int64]Kind{0: Row}},
		},
		Letters: []Letter{{p0, 2, 3}},
		Versions: []Version{
			{Number: 0, Table: "t"},
			{Number: 1, Table: "t", Member: "A", Txns: []Txn{{p0, AtStart, 0}, {p1, AtStart, 101}}},
			{Number: 2, Table: "t", Member: "A", Txns: []Txn{{p0, 0, 2}, {p1, 101, 102}}, Rows: []RowAt{{p0, 0}, {p1, 101}, {p0, 1}}},
			{Number: 3, Table: "t", Member: "B", Txns: []Txn{{p0, 2, 6}}, Rows: []RowAt{{p0, 3}}},
			{Number: 4, Table: "t", Txns: []Txn{{p0, NotRecorded, 7}}, Rows: []RowAt{{p0, 6}}},
			{Number: 5, Table: "t", Operator: true, Txns: []Txn{{p0, 7, 3}}},
			{Number: 6, Table: "t", Member: "B", Txns: []Txn{{p0, 3, 7}}, Rows: []RowAt{{p0, 3}, {p0, 6}}},
			{Number: 7, Table: "u"},
			{Number: 8, Table: "u", Operator: true, Accepts: true, Txns: []Txn{{p0, 7, 6}, {p1, 102, 102}}},
			{Number: 9, Table: "u", Member: "B", Txns: []Txn{{p0, 6, 7}}, Rows: []RowAt{{p0, 6}}},
		},
	}
}

// TestJudge_Rules changes the history good in many ways. Judge must accept each harmless change, and report each other
// one as its first violation.
func TestJudge_Rules(t *testing.T) {
	if found := Judge(good()); len(found) > 0 {
		t.Fatalf("a good history: %q", found)
	}
	if found := Judge(History{}); len(found) > 0 {
		t.Fatalf("an empty history: %q", found)
	}
	for _, c := range []struct {
		change func(*History)
		want   string
	}{
		{
			func(h *History) { h.Versions = slices.Insert(h.Versions, 3, h.Versions[2]) },
			"version 2 by A: a log version was written twice: the newest one was 2",
		},
		{
			func(h *History) { h.Versions = slices.Delete(h.Versions, 4, 6); h.Versions = h.Versions[:4] },
			"",
		},
		{
			func(h *History) { h.Versions[4].Number, h.Versions = 9, h.Versions[:5] },
			"version 9: a commit extends a prefix with a hole: the newest one was 3",
		},
		{func(h *History) { h.Versions[3].Unreadable = 2 }, "version 3 by B: a committed add whose file was deleted: 2 adds"},
		{
			func(h *History) {
				h.Versions[4].Txns = []Txn{{q0, AtStart, 1}}
				h.Versions[4].Rows, h.Versions = nil, h.Versions[:5]
			},
			"version 4: initial commit over a history: {orders b 0}, the table knows {orders a ",
		},
		{
			func(h *History) { h.Versions[1].Txns[0].Next = 1; h.Versions = h.Versions[:2] },
			"version 1 by A: the initial position is not the configured one: {orders a 0}: 1 instead of 0",
		},
		{func(h *History) { h.Versions[8].Accepts = false }, "version 9 by B: commit into a table that no operator accepted: table u"},
		{
			func(h *History) { h.Versions[3].Rows = append(h.Versions[3].Rows, RowAt{p0, 1}) },
			"version 3 by B: a record has two rows: {orders a 0}@1",
		},
		{
			func(h *History) { h.Versions[3].Rows = append(h.Versions[3].Rows, RowAt{p0, 4}) },
			"version 3 by B: a row outside [start, txn), or of an offset that is no row: {orders a 0}@4, [start, txn) is [0, 6)",
		},
		{
			func(h *History) { h.Versions[2].Rows = append(h.Versions[2].Rows, RowAt{p1, 100}) },
			"version 2 by A: a row outside [start, txn), or of an offset that is no row: {orders a 1}@100, [start, txn) is [101, 102)",
		},
		{
			func(h *History) { h.Versions[3].Rows = nil },
			"version 3 by B: a record in [start, txn) has no row: {orders a 0}@3",
		},
		{
			func(h *History) { h.Letters[0].Before = 4 },
			"version 3 by B: txn passed a poison record without a letter: {orders a 0}@2",
		},
		{func(h *History) { h.Letters = nil }, "version 3 by B: txn passed a poison record without a letter: {orders a 0}@2"},
		{
			func(h *History) { slices.Reverse(h.Versions[6].Rows) },
			"version 6 by B: rows of a partition are out of order: {orders a 0}@3 after @6",
		},
		{
			func(h *History) { h.Versions[3].Txns[0].From = 1 },
			"version 3 by B: a commit moves a position from a value that the table does not have: {orders a 0}: from 1, the table was at 2",
		},
		{
			func(h *History) { h.Versions[5].Operator = false },
			"version 5: a position moves back without an operator: {orders a 0}: from 7 to 3",
		},
		{
			func(h *History) { h.Versions[1].Txns = h.Versions[1].Txns[:1] },
			"version 2 by A: a commit moves a position that no initial commit has set: {orders a 1}",
		},
		{func(h *History) { h.Sources = h.Sources[:1] }, "version 1 by A: a partition without a source: {orders a 1}"},
	} {
		h := good()
		c.change(&h)
		found := Judge(h)
		if c.want == "" {
			if len(found) > 0 {
				t.Errorf("good, but: %q", found)
			}
			continue
		}
		if len(found) == 0 || !strings.HasPrefix(found[0], c.want) {
			t.Errorf("found %q, want %q", found, c.want)
		}
	}
}

// TestJudge_Brief shows that Judge returns perRule violations of one rule and a count of the others.
func TestJudge_Brief(t *testing.T) {
	s := Source{Partition: p0, Start: 0, Records: map[int64]Kind{}}
	for o := range int64(1000) {
		s.Records[o] = Row
	}
	found := Judge(History{Sources: []Source{s}, Versions: []Version{{Table: "t", Txns: []Txn{{p0, 0, 1000}}}}})
	var want []string
	for o := range 10 {
		want = append(want, fmt.Sprintf("version 0: a record in [start, txn) has no row: {orders a 0}@%d", o))
	}
	want = append(want, "… and 990 more: a record in [start, txn) has no row")
	if d := cmp.Diff(want, found); d != "" {
		t.Error(d)
	}
}
