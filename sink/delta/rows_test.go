package delta_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// TestTable_HasRows: which topics have rows is told by statistics, and by the files only where those leave it open.
func TestTable_HasRows(t *testing.T) {
	mem, tr := objstore.NewMem(), &trace{}
	tab := open(t, objstore.Traced(mem, tr.line))
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
		k := cut{9, 0, 0}
		if s, err = tab.Commit(t.Context(), k.commit(staged), func(*connector.Snapshot) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("long", 20) // longer than what statistics hold of a text
	put("orders")
	put("a", "m", "z")
	put(long)
	all := []string{"orders", "a", "m", "n", long, "0"}
	for name, c := range map[string]struct {
		topics   []string
		thorough bool
		want     []string
		reads    bool // data files
	}{
		"a file of its own":               {[]string{"orders"}, false, []string{"orders"}, false},
		"by statistics alone":             {all, false, []string{"orders"}, false},
		"thoroughly":                      {all, true, []string{"a", long, "m", "orders"}, true},
		"thoroughly, beyond all of them":  {[]string{"0", "~"}, true, nil, false},
		"thoroughly, between those there": {[]string{"n"}, true, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(tr.all())
			got, err := tab.HasRows(t.Context(), s, c.topics, c.thorough)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, slices.Sorted(maps.Keys(got))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			reads := slices.ContainsFunc(tr.all()[before:], func(op string) bool { return strings.Contains(op, " part-") })
			if reads != c.reads {
				t.Errorf("data files were read: %v\n%s", reads, strings.Join(tr.all()[before:], "\n"))
			}
		})
	}

	// A table that drops txns can lose those of one topic.
	m := stateOf(t, mem).Metadata
	m.Configuration = map[string]string{"delta.setTransactionRetentionDuration": "interval 40 days"}
	foreign(t, mem, m)
	if got, err := delta.HasRows(t.Context(), mem, []string{"m"}, false); err != nil || !got["m"] {
		t.Errorf("%v, %v", got, err)
	}
	// Others went on since the snapshot.
	foreign(t, mem)
	if got, err := tab.HasRows(t.Context(), s, []string{"m"}, true); err != nil || !got["m"] {
		t.Errorf("%v, %v", got, err)
	}
	// Files without statistics are read.
	for f, err := range delta.Adds(t.Context(), mem) {
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
