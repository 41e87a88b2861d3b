package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/admin"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

func TestVerifyKafka(t *testing.T) {
	verify := func(t *testing.T, w *written) (int, admin.Verification) {
		t.Helper()
		code, out, errs := connectorRun(t, "verify", "--kafka", "--config", w.config, "-o", "json")
		var v admin.Verification
		if err := json.Unmarshal([]byte(out), &v); err != nil || errs != "" {
			t.Fatalf("exit code %d: %v\n%s%s", code, err, out, errs)
		}
		return code, v
	}
	b := newBroker(t) // five records in each of two partitions
	tombstone := &kgo.Record{Topic: "orders", Partition: 1}
	if err := b.client.ProduceSync(t.Context(), tombstone).FirstErr(); err != nil {
		t.Fatal(err)
	}

	t.Run("the same", func(t *testing.T) {
		w := newTable(t, b.topic, b.addresses...).create()
		w.append(0, 0, 3, 3, 0, 1, 2) // the partition has two more records, which are not read yet
		w.append(1, 0, 6, 6, 0, 1, 2, 3, 4)
		code, v := verify(t, w)
		if code != exitOK || len(v.Findings) != 0 || len(v.Notes) != 0 {
			t.Fatalf("exit code %d, findings %v, notes %v", code, v.Findings, v.Notes)
		}
		want := []*admin.Comparison{{Next: 3, Records: 3}, {Next: 6, Records: 6, Tombstones: 1}}
		if d := cmp.Diff(want, []*admin.Comparison{v.Partitions[0].Compared, v.Partitions[1].Compared}); d != "" {
			t.Errorf("compared (-want +got):\n%s", d)
		}
		expect(t, exitOK, "ok: no gap, no overlap, no duplicate; the rows are those of the topic", "", "verify", "--kafka", "--config", w.config)
	})
	// The ranges of the commits fit the rows, so only a comparison with the topic shows that records are lost and rows
	// are invented.
	t.Run("a record is lost, a row is invented", func(t *testing.T) {
		w := newTable(t, b.topic, b.addresses...).create()
		w.append(0, 0, 5, 5, 0, 1, 2, 4)
		w.append(1, 0, 9, 9, 0, 1, 2, 3, 4, 7)
		expect(t, exitOK, "ok: no gap, no overlap, no duplicate", "", "verify", "--config", w.config)
		code, v := verify(t, w)
		want := []string{
			"lost: orders:0: 1 committed records of the topic have neither a row nor a dead letter, the first one at offset 3",
			"foreign: orders:1: 1 rows have no committed record with a value in the topic, the first one at offset 7",
		}
		if d := cmp.Diff(want, findingsOf(v)); d != "" || code != exitFound {
			t.Errorf("exit code %d, findings (-want +got):\n%s", code, d)
		}
	})
	t.Run("another topic of this name", func(t *testing.T) {
		other := b.topic
		other.ID[0]++
		w := newTable(t, other, b.addresses...).create()
		w.append(0, 0, 1, 1, 0)
		if code, v := verify(t, w); code != exitOK || len(v.Notes) != 2 || v.Partitions[0].Compared != nil {
			t.Errorf("exit code %d, notes %v, compared %v", code, v.Notes, v.Partitions[0].Compared)
		}
		expect(t, exitOK, "ONLY 0 of 2 partitions were compared with Kafka: the notes say why\n", "", "verify", "--kafka", "--config", w.config)
	})
	t.Run("no broker", func(t *testing.T) {
		w := newTable(t, b.topic).create()
		code, _, errs := connectorRun(t, "verify", "--kafka", "--timeout", "1s", "--config", w.config)
		if code != exitDependency || errs == "" {
			t.Errorf("exit code %d: %s", code, errs)
		}
	})
}

// TestVerifyKafka_Deleted expects rows that another program deleted not to count as lost: verify must note them and end
// with ok.
func TestVerifyKafka_Deleted(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	l.Produce("orders", 2, 0)
	l.runs(0, "run", "--until-current")
	store := objstore.Sub(l.Store, "orders")
	state, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	var newest deltalog.File
	for f, err := range deltalog.Files(t.Context(), store, state) {
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range delta.Offsets(t.Context(), store, f) {
			if err != nil {
				t.Fatal(err)
			}
			if row.Offset == 6 {
				newest = f
			}
		}
	}
	l.Append("orders", `{"commitInfo":{"operation":"DELETE"}}`, fmt.Sprintf(`{"remove":{"path":%q,"deletionTimestamp":1,"dataChange":true}}`, newest.Path))
	out, _ := l.runs(0, "verify", "--kafka")
	for _, want := range []string{
		"note: orders:0: 2 records have no row: commits added 7 rows, of which other programs deleted 2\n",
		"ok: no gap, no overlap, no duplicate; the rows are those of the topic\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestVerifyKafka_LostBesideDeleted: a commit passed a record without a row, and then another program deleted two rows.
// verify must still count one record as lost, because more records lack a row than rows were deleted.
func TestVerifyKafka_LostBesideDeleted(t *testing.T) {
	b := newBroker(t) // five records in each of two partitions
	w := newTable(t, b.topic, b.addresses...).create()
	w.append(0, 0, 2, 2, 0, 1)
	w.append(0, 2, 5, 5, 2, 4) // 3 is lost
	state, err := deltalog.Load(t.Context(), w.store)
	if err != nil {
		t.Fatal(err)
	}
	for f, err := range deltalog.Files(t.Context(), w.store, state) {
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range delta.Offsets(t.Context(), w.store, f) {
			if err != nil {
				t.Fatal(err)
			}
			if row.Offset != 0 {
				continue
			}
			text := fmt.Sprintf("%s\n"+`{"remove":{"path":%q,"deletionTimestamp":1,"dataChange":true}}`, `{"commitInfo":{"operation":"DELETE"}}`, f.Path)
			if err := w.store.Put(t.Context(), fmt.Sprintf("_delta_log/%020d.json", state.Version+1), strings.NewReader(text), objstore.IfAbsent); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect(t, exitFound, "lost: orders:0: 1 committed records of the topic have neither a row nor a dead letter, beside 2 whose rows other programs deleted; "+
		"the first one of both is at offset 0\n", "", "verify", "--kafka", "--config", w.config)
}

func findingsOf(v admin.Verification) (lines []string) {
	for _, f := range v.Findings {
		lines = append(lines, f.String())
	}
	return lines
}
