package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/config"
	"sluice/reliability/origin"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// keyed returns the lake with a configured file of keys, which sign the records that a replay produces to the topic.
func keyed(l *lake) *lake {
	l.T.Helper()
	file := filepath.Join(l.Dir, "keys")
	text := strings.Repeat("a", 64) + "\n" + strings.Repeat("b", 64) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		l.T.Fatal(err)
	}
	return l.as(`ops: {listen: ""}`, fmt.Sprintf(`ops: {listen: "", replay_secret_file: %q}`, file))
}

// TestDeadLettersReplay_ThroughTopic: a replay produces the records of dead letters to their topic, where a running member
// reads them. Each becomes one row. The same replay again produces nothing, copies of the produced records make no second
// row, and records with a forged or unknown origin are ordinary records.
func TestDeadLettersReplay_ThroughTopic(t *testing.T) {
	_, corrected := newLetters(t)
	args := []string{"replay-all", "orders", "--mode", "topic"}
	_, errs := corrected.runs(exitUsage, append([]string{"deadletters"}, append(args, "--reason", "r", "--yes")...)...)
	if !strings.Contains(errs, "name their file in ops.replay_secret_file") {
		t.Error(errs)
	}
	if _, errs = corrected.runs(exitUsage, "deadletters", "replay-all", "--mode", "both", "--reason", "r", "--yes"); !strings.Contains(errs, `--mode "both": write direct or topic`) {
		t.Error(errs)
	}
	l := keyed(corrected)
	m := l.start()
	for _, rows := range []int64{5, 0} { // the second time, only the record that still cannot become a row is left
		if r := replayed(t, l, 1, args...); r.Rows != rows || r.Failed["type_mismatch"] != 1 || len(r.Commits) != 0 {
			t.Errorf("%+v, want %d rows", r, rows)
		}
	}
	l.Has("orders", map[string][]int64{"orders:0": {0, 2, 4, 6, 10, 11, 12, 13, 14}})
	got := statesOf(listed(t, l, 0, "--state", "all"))
	slices.Sort(got)
	if d := cmp.Diff([]string{"0@1 replayed 1", "0@3 replayed 1", "0@5 replayed 1", "0@7 replayed 1", "0@8 unresolved 1", "0@9 replayed 1"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if list := listed(t, l, 0); list.Unresolved != 1 {
		t.Errorf("%+v", list)
	}

	// The topic gets the produced records again, a record with a forged origin, and records whose origin has an intent
	// that was never opened, another table, or another pipeline.
	l.Client.AddConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().At(10)}})
	var produced []*kgo.Record
	for len(produced) < 5 {
		produced = append(produced, l.Client.PollFetches(t.Context()).Records()...)
	}
	l.Client.PurgeTopicsFromConsuming("orders")
	var again []*kgo.Record
	for _, r := range produced {
		if len(r.Headers) != 2 || r.Headers[0].Key != "h" || r.Headers[1].Key != origin.Header || string(r.Key) != "k" {
			t.Errorf("%+v", r)
		}
		again = append(again, &kgo.Record{Topic: "orders", Key: r.Key, Value: r.Value, Headers: r.Headers})
	}
	forged := *again[0]
	forged.Value = []byte(`{"n":99}`)
	keys, err := config.ReadOriginKeys(filepath.Join(l.Dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	genuine, err := keys.Verify(produced[0].Headers[1].Value, produced[0].Key, produced[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	of := func(change func(*origin.Origin)) *kgo.Record {
		o, r := genuine, *again[0]
		change(&o)
		r.Headers = []kgo.RecordHeader{{Key: origin.Header, Value: keys.Sign(o, r.Key, r.Value)}}
		return &r
	}
	again = append(again, &forged, of(func(o *origin.Origin) { o.Intent = 999 }), of(func(o *origin.Origin) { o.TableID = "other" }),
		of(func(o *origin.Origin) { o.Pipeline = "other" }))
	if err := l.Client.ProduceSync(t.Context(), again...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.until("all of them were read", func() bool {
		return l.counted(m, "sluice_origins_total") >= 12 && l.counted(m, "sluice_origins_refused_total") >= 2
	})
	l.until("their rows are there", func() bool { return l.counted(m, "sluice_rows_committed_total") >= 5+4 })
	l.Has("orders", map[string][]int64{"orders:0": {0, 2, 4, 6, 10, 11, 12, 13, 14, 20, 21, 22, 23}})
	if out, errs := l.runs(0, "verify", "--kafka"); !strings.Contains(out, "ok") {
		t.Error(out, errs)
	}
	l.runs(0, "audit", "verify")
	out, _ := l.runs(0, "audit", "list")
	for _, want := range []string{"replay into table orders through the topic begins: ", "the table has accepted all records"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
	if _, errs := l.runs(exitRefused, "deadletters", "discard", "orders:0@1", "--reason", "r", "--yes"); !strings.Contains(errs, "orders:0@1 is replayed") {
		t.Error(errs)
	}
	state, err := deltalog.Load(t.Context(), objstore.Sub(l.Store, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	intent, n := origin.Accepted(state.Txns[genuine.Record.OriginsAppID("p")].Version)
	if intent < 1 || n < 1 || n > 5 {
		t.Errorf("intent %d, %d accepted", intent, n)
	}
}
