package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/connector"
)

// followRanges follows lines of the form "version from next rows letters", each a range of a commit, and returns the
// coverage of the one partition. letters may be left out, and "moved" at the end marks a move by an operator.
func followRanges(t *testing.T, lines string) *covered {
	t.Helper()
	c := coverage{}
	for line := range strings.Lines(lines) {
		r := connector.Range{Topic: "orders", Partition: 3}
		var version int64
		line, moved := strings.CutSuffix(strings.TrimSpace(line), " moved")
		if n, err := fmt.Sscan(line, &version, &r.From, &r.Next, &r.Rows, &r.Letters); n < 4 {
			t.Fatalf("%q: %v", line, err)
		}
		c.add(version, chain{source: source{"orders", 3}}, r, moved)
	}
	return c[chain{source: source{"orders", 3}}]
}

func texts(all []VerifyFinding) []string {
	var lines []string
	for _, f := range all {
		lines = append(lines, f.String())
	}
	return lines
}

func TestCoverage(t *testing.T) {
	for _, c := range []struct {
		name, ranges string
		intervals    []Interval
		next         int64
		findings     []string
	}{
		{"a whole log", "0 -1 5 0\n1 5 9 4\n2 9 9 0\n3 9 20 8", []Interval{{5, 20}}, 20, nil},
		{"nothing but START", "0 -1 0 0", nil, 0, nil},
		{"an operator left offsets out", "0 -1 0 0\n1 0 5 5\n2 5 9 0 moved\n3 9 12 3", []Interval{{0, 5}, {9, 12}}, 12, nil},
		{"an operator went back", "0 -1 0 0\n1 0 9 9\n2 9 4 0 moved\n3 4 6 2", []Interval{{0, 9}}, 6, nil},
		{
			"a member goes back", "0 -1 0 0\n1 0 9 9\n2 9 4 0",
			[]Interval{{0, 9}},
			4,
			[]string{"overlap: orders:3: version 2 goes backwards, from 9 to 4"},
		},
		{"a log that was cleaned up", "7 100 120 20\n8 120 130 10", []Interval{{100, 130}}, 130, nil},
		{
			"a gap", "0 -1 0 0\n1 0 5 5\n2 7 9 2",
			[]Interval{{0, 5}, {7, 9}},
			9,
			[]string{"gap: orders:3: offsets [5, 7) are in no commit: version 2 begins at 7"},
		},
		{
			"an overlap", "0 -1 0 0\n1 0 5 5\n2 3 9 6",
			[]Interval{{0, 9}},
			9,
			[]string{"overlap: orders:3: offsets [3, 5) are in two commits, the second one is version 2"},
		},
		{
			"the same twice", "0 -1 0 0\n1 0 5 5\n2 0 5 5",
			[]Interval{{0, 5}},
			5,
			[]string{"overlap: orders:3: offsets [0, 5) are in two commits, the second one is version 2"},
		},
		{
			"a second START", "0 -1 0 0\n1 0 5 5\n2 -1 0 0",
			[]Interval{{0, 5}},
			0,
			[]string{"overlap: orders:3: version 2 starts again at 0, the commit before ended at 5"},
		},
		{
			"backwards", "0 -1 5 0\n1 5 2 0", nil, 2,
			[]string{"overlap: orders:3: version 1 goes backwards, from 5 to 2"},
		},
		{
			"filled later", "0 -1 0 0\n1 0 2 2\n2 4 6 2\n3 2 4 2",
			[]Interval{{0, 6}},
			4,
			[]string{
				"gap: orders:3: offsets [2, 4) are in no commit: version 2 begins at 4",
				"overlap: orders:3: offsets [2, 4) are in two commits, the second one is version 3",
			},
		},
	} {
		got := followRanges(t, c.ranges)
		if d := cmp.Diff(c.intervals, got.intervals); d != "" {
			t.Errorf("%s: intervals (-want +got):\n%s", c.name, d)
		}
		if d := cmp.Diff(c.findings, texts(got.findings)); d != "" || got.next != c.next {
			t.Errorf("%s: next %d, findings (-want +got):\n%s", c.name, got.next, d)
		}
	}
}

func TestRowCheck(t *testing.T) {
	in := followRanges(t, "0 -1 10 0\n1 10 15 4\n2 15 20 5")
	check := func(in *covered, altered bool, offsets ...int64) []string {
		var r rowCheck
		if in != nil {
			r.chains = append(r.chains, in)
		}
		for _, o := range offsets {
			r.add(o)
		}
		return texts(r.findings(source{"orders", 3}, altered))
	}
	for _, c := range []struct {
		name    string
		in      *covered
		altered bool
		offsets []int64
		want    []string
	}{
		{"as committed", in, false, []int64{10, 11, 12, 14, 15, 16, 17, 18, 19}, nil},
		{
			"one twice, one missing", in, false,
			[]int64{10, 11, 12, 12, 15, 16, 17, 18, 19},
			[]string{"duplicate: orders:3: 1 rows repeat an offset, the first one 12", "missing: orders:3: the commits hold 9 rows, the table has 8"},
		},
		{"deleted by others", in, true, []int64{10}, nil},
		{
			"beyond the position and before START", in, true,
			[]int64{9, 20, 21},
			[]string{"uncovered: orders:3: 3 rows have an offset that no commit covers, the first one 9"},
		},
		{"never committed", nil, false, []int64{0}, []string{"uncovered: orders:3: 1 rows have an offset that no commit covers, the first one 0"}},
		{"a log that was cleaned up", followRanges(t, "7 100 120 20"), false, []int64{1, 99, 100, 119}, nil},
		{
			"beyond the position of a log that was cleaned up", followRanges(t, "7 100 120 20"), false,
			[]int64{120},
			[]string{"uncovered: orders:3: 1 rows have an offset that no commit covers, the first one 120"},
		},
	} {
		if d := cmp.Diff(c.want, check(c.in, c.altered, c.offsets...)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// TestTwoChains: two pipelines may each have a row of the same offset. A row at an offset that neither has committed is
// a finding.
func TestTwoChains(t *testing.T) {
	r := rowCheck{chains: []*covered{followRanges(t, "0 -1 0 0\n1 0 3 3"), followRanges(t, "4 -1 2 0\n5 2 5 3")}}
	for _, o := range []int64{0, 1, 2, 2, 3, 4} {
		r.add(o)
	}
	if got := r.findings(source{"orders", 3}, false); got != nil {
		t.Error(got)
	}
	r.add(5)
	if d := cmp.Diff([]string{"uncovered: orders:3: 1 rows have an offset that no commit covers, the first one 5"}, texts(r.findings(source{"orders", 3}, false))); d != "" {
		t.Error(d)
	}
}

// TestTopicIDs: rows with a topic id are checked against the commits of their own id, so that a topic that was created
// again hides no duplicates. Rows without an id may be of either.
func TestTopicIDs(t *testing.T) {
	first, second := followRanges(t, "0 -1 0 0\n1 0 3 3"), followRanges(t, "4 -1 0 0\n5 0 2 2")
	of := func(rows string) *rowCheck {
		r := &rowCheck{chains: []*covered{first, second}, ids: map[string][]*covered{"A": {first}, "B": {second}}}
		for row := range strings.FieldsSeq(rows) {
			r.addRow(strings.Trim(row, "-0123456789"), int64(row[len(row)-1]-'0'))
		}
		return r
	}
	const missing = "missing: orders:3: the commits hold 5 rows, the table has 4"
	for rows, want := range map[string][]string{
		"A0 A1 A2 B0 B1":       nil,
		"-0 -1 -2 -0 -1":       nil,
		"-0 A1 A2 -0 B1":       nil,
		"A0 A1 A2 B0 B0":       {"duplicate: orders:3: 1 rows of topic id B repeat an offset, the first one 0", missing},
		"A0 A1 A2 B0":          {missing},
		"A0 A1 A2 B0 B1 B2":    {"uncovered: orders:3: 1 rows of topic id B have an offset that no commit covers, the first one 2"},
		"A0 A1 A2 B0 B1 C1":    {"uncovered: orders:3: 1 rows of topic id C have an offset that no commit covers, the first one 1"},
		"A0 A1 A1 A2 B0 B1 -1": {"duplicate: orders:3: 1 rows of topic id A repeat an offset, the first one 1"},
	} {
		if d := cmp.Diff(want, texts(of(rows).findings(source{"orders", 3}, false))); d != "" {
			t.Errorf("%s (-want +got):\n%s", rows, d)
		}
	}
	if r := of("A0 A1 A2 B0"); r.rowsOf("A") != 3 || r.rowsOf("B") != 1 || r.of("B") == nil || len(r.of("B").chains) != 1 || r.rowsOf("C") != 0 {
		t.Errorf("%d and %d rows", r.rowsOf("A"), r.rowsOf("B"))
	}
	if r := of("A0 A1 -1 B0"); r.of("A") != nil || r.rowsOf("A") != 4 {
		t.Error("a row without a topic id may be of either topic")
	}
	// If all commits are of one topic id, rows without an id count as rows of this id: so offset 0 is a duplicate.
	r := &rowCheck{chains: []*covered{first}, ids: map[string][]*covered{"A": {first}}}
	for _, id := range []string{"", "A", "A", ""} {
		r.addRow(id, r.rows%3)
	}
	if d := cmp.Diff([]string{"duplicate: orders:3: 1 rows repeat an offset, the first one 0"}, texts(r.findings(source{"orders", 3}, false))); d != "" || r.of("A") != r {
		t.Errorf("(-want +got):\n%s", d)
	}
	// If the log has the position of the earlier topic, but no longer its commits, the rows of that topic are no
	// finding.
	r = &rowCheck{chains: []*covered{second}, ids: map[string][]*covered{"A": {{next: 3}}, "B": {second}}}
	for _, row := range []string{"A0", "A2", "B0", "B1"} {
		r.addRow(row[:1], int64(row[1]-'0'))
	}
	if got := r.findings(source{"orders", 3}, false); got != nil {
		t.Error(got)
	}
}

// TestOffsetSet: an offsetSet has exactly the offsets that were added to it, as a map would. The offsets cross page
// borders and fill pages.
func TestOffsetSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s offsetSet
		seen := map[int64]bool{}
		for range rapid.IntRange(1, 20).Draw(t, "runs") {
			from := rapid.Int64Range(0, 4*pageBits).Draw(t, "from")
			for o := range rapid.Int64Range(1, pageBits+100).Draw(t, "length") {
				if got := s.add(from + o); got == seen[from+o] {
					t.Fatalf("offset %d: new %v, seen %v", from+o, got, seen[from+o])
				}
				seen[from+o] = true
			}
		}
	})
	var s offsetSet
	for o := range int64(10 * pageBits) {
		s.add(o)
	}
	for i, p := range s.pages {
		if p.bits != nil {
			t.Errorf("page %d is full and keeps its bits", i)
		}
	}
	if s.add(3) {
		t.Error("a row of a full page counts as new")
	}
}

// TestIntervals compares the method holds with a map of the same offsets.
func TestIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c covered
		seen := map[int64]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "ranges") {
			in := Interval{From: rapid.Int64Range(0, 60).Draw(t, "from")}
			in.Next = in.From + rapid.Int64Range(0, 9).Draw(t, "length")
			c.intervals = cover(c.intervals, in)
			for o := in.From; o < in.Next; o++ {
				seen[o] = true
			}
		}
		for o := range int64(80) {
			if c.holds(o) != seen[o] {
				t.Fatalf("offset %d in %v: %v", o, c.intervals, c.holds(o))
			}
		}
		if !slices.IsSortedFunc(c.intervals, func(a, b Interval) int { return int(a.Next - b.From) }) {
			t.Fatalf("intervals touch: %v", c.intervals)
		}
	})
}
