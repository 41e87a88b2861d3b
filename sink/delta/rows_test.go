package delta_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// whole returns queries for the rows of all partitions of each topic.
func whole(topics ...string) (of []connector.RowsOf) {
	for _, topic := range topics {
		of = append(of, connector.RowsOf{Topic: topic, Partition: connector.AnyPartition})
	}
	return of
}

func topicsOf(found map[connector.RowsOf]bool) (topics []string) {
	for of := range found {
		topics = append(topics, of.Topic)
	}
	slices.Sort(topics)
	return topics
}

// TestTable_HasRows: HasRows finds the topics that have rows by statistics. It reads a file only if the statistics do
// not decide.
func TestTable_HasRows(t *testing.T) {
	mem, tr := objstore.NewMem(), &trace{}
	tab := open(t, objstoretest.Traced(mem, tr.line))
	s := load(t, tab)
	put := func(topics ...string) {
		t.Helper()
		var pieces []connector.Piece
		for _, topic := range topics {
			pieces = append(pieces, rowsOf(s.Schema, topic, 0, 0, 2))
		}
		staged, err := tab.Stage(t.Context(), s, "b-1", pieces, nil)
		if err != nil {
			t.Fatal(err)
		}
		k := rowRange{9, 0, 0}
		if s, err = tab.Commit(t.Context(), k.commit(staged), func(*connector.Snapshot) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("long", 20) // longer than the prefix that the statistics of a text keep
	put("orders")
	put("a", "m", "z")
	put(long)
	all := whole("orders", "a", "m", "n", long, "0")
	for name, c := range map[string]struct {
		topics   []connector.RowsOf
		thorough bool
		want     []string
		reads    bool // true if data files must be read
	}{
		"a file of its own":               {whole("orders"), false, []string{"orders"}, false},
		"by statistics alone":             {all, false, []string{"orders"}, false},
		"thoroughly":                      {all, true, []string{"a", long, "m", "orders"}, true},
		"thoroughly, beyond all of them":  {whole("0", "~"), true, nil, false},
		"thoroughly, between those there": {whole("n"), true, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(tr.all())
			got, err := tab.HasRows(t.Context(), s, c.topics, c.thorough)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, topicsOf(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			reads := slices.ContainsFunc(tr.all()[before:], func(op string) bool { return strings.Contains(op, " part-") })
			if reads != c.reads {
				t.Errorf("data files were read: %v\n%s", reads, strings.Join(tr.all()[before:], "\n"))
			}
		})
	}

	// In a table that drops txns, a topic may have rows and no txn. So HasRows searches it thoroughly, although
	// thorough is false.
	m := stateOf(t, mem).Metadata
	m.Configuration = map[string]string{"delta.setTransactionRetentionDuration": "interval 40 days"}
	foreign(t, mem, m)
	if got, err := delta.HasRows(t.Context(), mem, whole("m"), false); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	// HasRows finds the row of an older snapshot, too: another writer has committed a version since.
	foreign(t, mem)
	if got, err := tab.HasRows(t.Context(), s, whole("m"), true); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	// HasRows reads files that have no statistics.
	for f, err := range deltatest.Adds(t.Context(), mem) {
		if err != nil {
			t.Fatal(err)
		}
		add := f.Add
		add.Stats, add.DataChange = "", false
		foreign(t, mem, add)
	}
	if got, err := delta.HasRows(t.Context(), mem, all, true); err != nil || len(got) != 4 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := delta.HasRows(t.Context(), objstore.NewMem(), all, true); !errors.Is(err, deltalog.ErrNoTable) {
		t.Error(err)
	}
}

// TestTable_HasRows_OfPartitions: HasRows finds the rows of single partitions in any file that may have them. If a
// topic gets new partitions, statistics rule them out without reading a file, because their numbers are greater than
// those of the rows.
func TestTable_HasRows_OfPartitions(t *testing.T) {
	mem, tr := objstore.NewMem(), &trace{}
	tab := open(t, objstoretest.Traced(mem, tr.line))
	s := load(t, tab)
	long := strings.Repeat("long", 20)
	at := int64(0)
	put := func(pieces ...connector.Piece) {
		t.Helper()
		staged, err := tab.Stage(t.Context(), s, "b-1", pieces, nil)
		if err != nil {
			t.Fatal(err)
		}
		k := rowRange{9, at, at + 1}
		at++
		if s, err = tab.Commit(t.Context(), k.commit(staged), func(*connector.Snapshot) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	put(rowsOf(s.Schema, "orders", 0, 0, 2), rowsOf(s.Schema, "orders", 3, 0, 2), rowsOf(s.Schema, "orders", 5, 0, 2))
	put(rowsOf(s.Schema, "orders", 3, 2, 4))
	put(rowsOf(s.Schema, "a", 7, 0, 2), rowsOf(s.Schema, "z", 1, 0, 2))
	put(rowsOf(s.Schema, long, 2, 0, 2))
	for name, c := range map[string]struct {
		of    []connector.RowsOf
		want  []connector.RowsOf
		files int // number of files read, with one request each; -1 if it depends on the order of the files
	}{
		"one of a file of many":             {[]connector.RowsOf{{Topic: "orders", Partition: 5}}, []connector.RowsOf{{Topic: "orders", Partition: 5}}, -1},
		"none of the partition":             {[]connector.RowsOf{{Topic: "orders", Partition: 4}}, nil, 2},
		"beyond those of its topic":         {[]connector.RowsOf{{Topic: "a", Partition: 8}, {Topic: "z", Partition: 9}}, nil, 0},
		"beyond, beside another topic":      {[]connector.RowsOf{{Topic: "orders", Partition: 6}}, nil, 1},
		"of a name that statistics cut":     {[]connector.RowsOf{{Topic: long, Partition: 2}, {Topic: long, Partition: 7}}, []connector.RowsOf{{Topic: long, Partition: 2}}, -1},
		"of many, and of topics as a whole": {append(whole("orders", "n"), connector.RowsOf{Topic: "a", Partition: 7}), []connector.RowsOf{{Topic: "orders", Partition: -1}, {Topic: "a", Partition: 7}}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(tr.all())
			got, err := tab.HasRows(t.Context(), s, c.of, false)
			if err != nil {
				t.Fatal(err)
			}
			want := map[connector.RowsOf]bool{}
			for _, of := range c.want {
				want[of] = true
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			read := 0
			for _, op := range tr.all()[before:] {
				if strings.Contains(op, " part-") {
					read++
				}
			}
			if c.files >= 0 && read != c.files {
				t.Errorf("%d data files were read, want %d:\n%s", read, c.files, strings.Join(tr.all()[before:], "\n"))
			}
		})
	}

	// Statistics without these columns, or with impossible values, rule no file out.
	for name, stats := range map[string]string{
		"none":           "",
		"no JSON":        "{",
		"others":         `{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":1}}`,
		"inverted":       `{"minValues":{"_kafka_topic":"orders","_kafka_partition":9},"maxValues":{"_kafka_topic":"orders","_kafka_partition":1}}`,
		"of other types": `{"minValues":{"_kafka_topic":7,"_kafka_partition":"9"},"maxValues":{"_kafka_topic":[],"_kafka_partition":1.5e99}}`,
		"of cut names":   `{"minValues":{"_kafka_topic":"ord","_kafka_partition":0},"maxValues":{"_kafka_topic":"ord","_kafka_partition":5}}`,
		"of the highest": `{"maxValues":{"_kafka_topic":"orders","_kafka_partition":5}}`,
	} {
		for f, err := range deltatest.Adds(t.Context(), mem) {
			if err != nil {
				t.Fatal(err)
			}
			add := f.Add
			add.Stats, add.DataChange = stats, false
			foreign(t, mem, add)
		}
		of := []connector.RowsOf{{Topic: "orders", Partition: 3}, {Topic: "orders", Partition: 4}}
		if got, err := delta.HasRows(t.Context(), mem, of, false); err != nil || len(got) != 1 || !got[of[0]] {
			t.Errorf("statistics: %s: %v, %v", name, got, err)
		}
	}
}

// TestTable_HasRows_StopsAtTheFirst: once a row of a query is found, no more files are read for that query, also while
// other queries continue.
func TestTable_HasRows_StopsAtTheFirst(t *testing.T) {
	const files = 20
	mem, tr := objstore.NewMem(), &trace{}
	tab := open(t, objstoretest.Traced(mem, tr.line))
	s := load(t, tab)
	for i := range int64(files) {
		staged, err := tab.Stage(t.Context(), s, "b-1", []connector.Piece{rows(s.Schema, 3, i, i+1)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		k := rowRange{3, i, i + 1}
		if s, err = tab.Commit(t.Context(), k.commit(staged), func(*connector.Snapshot) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	before := len(tr.all())
	of := []connector.RowsOf{{Topic: "orders", Partition: 3}, {Topic: "orders", Partition: 4}}
	if got, err := tab.HasRows(t.Context(), s, of, false); err != nil || len(got) != 1 || !got[of[0]] {
		t.Fatalf("%v, %v", got, err)
	}
	read := 0
	for _, op := range tr.all()[before:] {
		if strings.Contains(op, " part-") {
			read++
		}
	}
	if read > 5 { // one for each of the four readers, and one that a reader had been given already
		t.Errorf("%d of %d data files were read", read, files)
	}
}
