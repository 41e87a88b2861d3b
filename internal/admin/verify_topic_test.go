package admin

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/sink/opslog"
)

// compareTopic compares rows with the records of a topic in [from, to), both given as offsets. The records in
// tombstones have no value.
func compareTopic(in *covered, from, to int64, rows, records, tombstones []int64) *topicCheck {
	var r rowCheck
	r.chains = append(r.chains, in)
	for _, o := range rows {
		r.add(o)
	}
	c := newTopicCheck(&r, from)
	for _, o := range records {
		rec := connector.Record{Offset: o}
		if !slices.Contains(tombstones, o) {
			rec.Value = []byte("{}")
		}
		c.record(&rec)
	}
	c.pass(to)
	return c
}

func TestTopicCheck(t *testing.T) {
	in := followRanges(t, "0 -1 10 0\n1 10 20 8")
	for _, c := range []struct {
		name                      string
		from                      int64
		rows, records, tombstones []int64
		want                      []string
	}{
		{"the same", 10, []int64{10, 11, 19}, []int64{10, 11, 19}, nil, nil},
		{"nothing", 10, nil, nil, nil, nil},
		{"a tombstone has no row", 10, []int64{10, 12}, []int64{10, 11, 12}, []int64{11}, nil},
		{"before START", 0, []int64{10}, []int64{3, 4, 10}, nil, nil},
		{"before the log's start", 15, []int64{10, 11, 16}, []int64{16}, nil, nil},
		{
			"lost", 10,
			[]int64{10, 13},
			[]int64{10, 11, 12, 13},
			nil,
			[]string{"lost: orders:3: 2 committed records of the topic have neither a row nor a dead letter, the first one at offset 11"},
		},
		{
			"an aborted record became a row", 10,
			[]int64{10, 14, 17, 19},
			[]int64{10, 17},
			nil,
			[]string{"foreign: orders:3: 2 rows have no committed record with a value in the topic, the first one at offset 14"},
		},
		{
			"a tombstone became a row", 10,
			[]int64{10, 11},
			[]int64{10, 11},
			[]int64{11},
			[]string{"foreign: orders:3: 1 rows have no committed record with a value in the topic, the first one at offset 11"},
		},
	} {
		got := compareTopic(in, c.from, 20, c.rows, c.records, c.tombstones)
		if d := cmp.Diff(c.want, texts(got.findings(source{"orders", 3}, false))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if got.records != int64(len(c.records)) || got.tombstones != int64(len(c.tombstones)) {
			t.Errorf("%s: %d records, %d tombstones", c.name, got.records, got.tombstones)
		}
	}
	got := compareTopic(in, 10, 20, []int64{10, 14}, []int64{10}, nil)
	if all := got.findings(source{"orders", 3}, true); all != nil {
		t.Errorf("a row whose record was compacted away is a finding: %v", all)
	}
}

// TestTopicCheckHealthRecords: as many health-check records may lack a row as the commits count as dropped; one more is
// a finding.
func TestTopicCheckHealthRecords(t *testing.T) {
	check := []connector.Header{{Key: connector.HealthHeader, Value: []byte(connector.HealthValue)}}
	for _, c := range []struct {
		name    string
		dropped int64 // the number that the commits count as dropped
		rows    []int64
		plain   bool // if true, the records without a row have no health-check header
		want    []string
	}{
		{"explained", 2, []int64{10}, false, nil},
		{"the log of the topic has forgotten some", 9, []int64{10}, false, nil},
		{"kept as rows", 0, []int64{10, 11, 12}, false, nil},
		{"one too many", 1, []int64{10}, false, []string{
			"lost: orders:3: 2 committed records with the header HEALTHCHECK=TRUE have no row, the first one at offset 11; the commits say that they dropped 1",
		}},
		{"no health checks", 2, []int64{10}, true, []string{"lost: orders:3: 2 committed records of the topic have neither a row nor a dead letter, the first one at offset 11"}},
	} {
		all := coverage{}
		at := chain{source: source{"orders", 3}}
		all.add(0, at, connector.Range{Topic: "orders", Partition: 3, From: -1, Next: 10}, false)
		all.add(1, at, connector.Range{Topic: "orders", Partition: 3, From: 10, Next: 20, Rows: 1, HealthRecords: c.dropped}, false)
		r := rowCheck{chains: []*covered{all[at]}}
		for _, o := range c.rows {
			r.add(o)
		}
		got := newTopicCheck(&r, 10)
		for o := range int64(3) {
			rec := connector.Record{Offset: 10 + o, Value: []byte("{}")}
			if o > 0 && !c.plain {
				rec.Headers = check
			}
			got.record(&rec)
		}
		got.pass(20)
		if d := cmp.Diff(c.want, texts(got.findings(source{"orders", 3}, false))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// TestTopicCheckLetters: as many records in the range of a commit may lack a row as the commit counts as dead letters;
// one more is a finding.
func TestTopicCheckLetters(t *testing.T) {
	in := followRanges(t, "0 -1 0 0\n1 0 5 3 2\n2 5 9 3 0\n3 9 12 2 1\n4 12 2 0 moved\n5 2 6 3 1")
	records := []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for _, c := range []struct {
		name string
		from int64
		rows []int64
		want []string
	}{
		{"all of them", 0, []int64{0, 3, 4, 5, 6, 7, 8, 9, 11}, nil},
		{"one more in the second commit", 0, []int64{0, 3, 4, 5, 6, 8, 9, 11}, []string{
			"lost: orders:3: 1 committed records of the topic have neither a row nor a dead letter, the first one at offset 7",
		}},
		{"one more in the third", 0, []int64{0, 3, 4, 5, 6, 7, 8, 9}, []string{
			"lost: orders:3: 1 committed records of the topic have neither a row nor a dead letter, the first one at offset 11",
		}},
		{"behind the log's start", 8, []int64{8, 9, 11}, nil},
	} {
		at := slices.Index(records, c.from)
		got := compareTopic(in, c.from, 12, c.rows, records[at:], nil)
		if d := cmp.Diff(c.want, texts(got.findings(source{"orders", 3}, false))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
	if in.letters != 4 {
		t.Errorf("%d letters, want 4", in.letters)
	}
}

// TestTopicCheckSets: for random sets of rows and records, over several pages, the check counts exactly the records
// without a row as lost, and the rows without a record as foreign.
func TestTopicCheckSets(t *testing.T) {
	in := followRanges(t, "0 -1 0 0\n1 0 1000000000 0")
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.OneOf(rapid.Int64Range(0, 200), rapid.Int64Range(pageBits-100, pageBits+100), rapid.Int64Range(0, 5*pageBits))
		set := func(label string) []int64 {
			all := rapid.SliceOfDistinct(offset, func(o int64) int64 { return o }).Draw(t, label)
			slices.Sort(all)
			return all
		}
		rows, records := set("rows"), set("records")
		got := compareTopic(in, 0, 5*pageBits+1, rows, records, nil)
		var lost, foreign int64
		for _, o := range records {
			if !slices.Contains(rows, o) {
				lost++
			}
		}
		for _, o := range rows {
			if !slices.Contains(records, o) {
				foreign++
			}
		}
		if got.lost != lost || got.foreign != foreign {
			t.Fatalf("lost %d, foreign %d, want %d and %d", got.lost, got.foreign, lost, foreign)
		}
	})
}

func TestOffsetSetFullPages(t *testing.T) {
	var s offsetSet
	for o := range int64(2*pageBits + 10) {
		s.add(o)
	}
	s.add(3*pageBits + 5)
	for _, c := range []struct{ from, at int64 }{{0, 0}, {pageBits + 7, pageBits + 7}, {2*pageBits + 10, 3*pageBits + 5}} {
		if at, ok := s.from(c.from); !ok || at != c.at {
			t.Errorf("from %d: %d %t, want %d", c.from, at, ok, c.at)
		}
	}
	if at, ok := s.from(3*pageBits + 6); ok {
		t.Errorf("behind the last one there is %d", at)
	}
	if !s.has(pageBits) || s.has(2*pageBits+10) || s.has(-1) {
		t.Error("has does not tell what was added")
	}
}

// TestTopicCheckDuplicates: as many records in the range of a commit may lack a row as the commit counts as duplicates;
// one more is a finding.
func TestTopicCheckDuplicates(t *testing.T) {
	for _, c := range []struct {
		name string
		left [2]int64 // the duplicates that the commits of [10, 15) and of [15, 20) count
		rows []int64
		want []string
	}{
		{"explained", [2]int64{2, 1}, []int64{10, 13, 14, 15, 16, 18, 19}, nil},
		{"one too many", [2]int64{1, 2}, []int64{10, 13, 14, 15, 16, 18, 19}, []string{
			"lost: orders:3: 1 committed records of the topic have neither a row nor a dead letter, the first one at offset 12",
		}},
	} {
		all, at := coverage{}, chain{source: source{"orders", 3}}
		all.add(0, at, connector.Range{Topic: "orders", Partition: 3, From: -1, Next: 10}, false)
		all.add(1, at, connector.Range{Topic: "orders", Partition: 3, From: 10, Next: 15, Rows: 3, Duplicates: c.left[0]}, false)
		all.add(2, at, connector.Range{Topic: "orders", Partition: 3, From: 15, Next: 20, Rows: 4, Duplicates: c.left[1]}, false)
		r := rowCheck{chains: []*covered{all[at]}}
		for _, o := range c.rows {
			r.add(o)
		}
		got := newTopicCheck(&r, 10)
		for o := range int64(10) {
			got.record(&connector.Record{Offset: 10 + o, Value: []byte("{}")})
		}
		if d := cmp.Diff(c.want, texts(got.findings(source{"orders", 3}, false))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if all[at].twins != 3 {
			t.Errorf("%s: %d duplicates", c.name, all[at].twins)
		}
	}
}

func TestTopicCheck_Deleted(t *testing.T) {
	c := &topicCheck{lost: 5, firstLost: 3}
	if n := c.deleted(2); n != 2 || c.lost != 3 {
		t.Errorf("%d are taken, %d stay lost", n, c.lost)
	}
	if n := c.deleted(-1); n != 0 || c.lost != 3 {
		t.Errorf("%d are taken for more rows than were committed", n)
	}
}

// TestTopicCheck_Replayed: the commit that passed a record counts its dead letter. A row that a replay made uses up one
// of this number, so the number cannot hide a lost record.
func TestTopicCheck_Replayed(t *testing.T) {
	for name, c := range map[string]struct {
		replayed string
		want     []string
	}{
		"one of two": {"11", []string{"lost: orders:3: 1 committed records of the topic have neither a row nor a dead letter, the first one at offset 15"}},
		"none":       {"", nil},
	} {
		in := followRanges(t, "0 -1 10 0\n1 10 20 8")
		in.lettered = []lettered{{Interval{10, 20}, 2}}
		at, err := offsets.Parse(c.replayed)
		if err != nil {
			t.Fatal(err)
		}
		for offset := range at.All() {
			in.replayed.add(offset)
		}
		got := compareTopic(in, 10, 20, []int64{10, 11, 14}, []int64{10, 11, 13, 14, 15}, nil)
		if d := cmp.Diff(c.want, texts(got.findings(source{"orders", 3}, false))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestCoverage_Replayed(t *testing.T) {
	p := idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: 3}
	at := chain{source{"orders", 3}, p.AppID("p")}
	c := coverage{at: {rows: 5, whole: true, intervals: []Interval{{0, 9}}, next: 9}}
	replayed := connector.Replayed(opslog.LettersOf(p, offsets.Of(2, 4)))
	c.addReplayed(replayed, "p")
	c.addReplayed(replayed, "another") // a replay of a pipeline that has no commits here must not matter
	r := rowCheck{chains: []*covered{c[at]}}
	for o := range int64(6) {
		r.add(o)
	}
	want := []string{"missing: orders:3: the commits hold 7 rows, the table has 6"}
	if d := cmp.Diff(want, texts(r.findings(at.source, false))); d != "" {
		t.Error(d)
	}
}
