package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/laketest"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// tampered is a table in a lake, to whose log the test writes as another program would.
type tampered struct {
	l     *lake
	store objstore.Store
	state *deltalog.State // the state before the first write of the test
}

func (l *lake) tamper(table string) *tampered {
	l.T.Helper()
	store := objstore.Sub(l.Store, table)
	state, err := deltalog.Load(l.T.Context(), store)
	if err != nil {
		l.T.Fatal(err)
	}
	return &tampered{l, store, state}
}

// put writes an object with this name into the folder of the log.
func (x *tampered) put(name string, body []byte) {
	x.l.T.Helper()
	if err := x.store.Put(x.l.T.Context(), deltalog.Dir+name, bytes.NewReader(body), objstore.Replace); err != nil {
		x.l.T.Fatal(err)
	}
}

// commit writes these lines as the next version of the log.
func (x *tampered) commit(lines ...string) {
	x.l.T.Helper()
	x.put(fmt.Sprintf("%020d.json", x.state.Version+1), []byte(strings.Join(lines, "\n")))
}

// checkpoint writes a sound checkpoint of the newest version and returns it.
func (x *tampered) checkpoint() []byte {
	x.l.T.Helper()
	if _, err := deltalog.WriteCheckpoint(x.l.T.Context(), x.store, x.state, time.Now(), ""); err != nil {
		x.l.T.Fatal(err)
	}
	r, err := x.store.Get(x.l.T.Context(), deltalog.CheckpointKey(x.state.Version), 0, -1)
	if err != nil {
		x.l.T.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		x.l.T.Fatal(err)
	}
	return b.Bytes()
}

// position commits a txn with this version for partition 0 of the table's topic, without commitInfo.
func (x *tampered) position(version string) {
	x.l.T.Helper()
	for id := range x.state.Txns {
		if strings.HasSuffix(id, ":0") && !strings.Contains(id, ":table:") {
			x.commit(fmt.Sprintf(`{"txn":{"appId":%q,"version":%s}}`, id, version))
			return
		}
	}
	x.l.T.Fatalf("no position in %v", slices.Sorted(maps.Keys(x.state.Txns)))
}

// hostileInputs has content that other programs may write to the log of a table, by the topic that feeds the table. The
// member must hold the topic for the reason, with a detail that contains the text. Without a reason it must continue.
var hostileInputs = map[string]struct {
	reason, detail string
	put            func(x *tampered)
}{
	"absurd-commit": {"table_unsupported", "_delta_log/09223372036854775807.json names a version that no log reaches", func(x *tampered) {
		x.put("09223372036854775807.json", nil)
	}},
	"absurd-commit-no-int": {"table_unsupported", "_delta_log/99999999999999999999.json names a version that no log reaches", func(x *tampered) {
		x.put("99999999999999999999.json", nil)
	}},
	"absurd-checkpoint": {"table_unsupported", "_delta_log/09223372036854775806.checkpoint.parquet names a version", func(x *tampered) {
		x.put("09223372036854775806.checkpoint.parquet", x.checkpoint())
	}},
	"absurd-part": {"table_unsupported", "_delta_log/09223372036854775807.checkpoint.0000000001.0000000002.parquet names", func(x *tampered) {
		x.put("09223372036854775807.checkpoint.0000000001.0000000002.parquet", nil)
	}},
	"far-checkpoint": {"table_unsupported", "_delta_log/00000000000000001000.checkpoint.parquet lies behind the newest commit", func(x *tampered) {
		x.put("00000000000000001000.checkpoint.parquet", x.checkpoint())
		x.put("_last_checkpoint", []byte(`{"version":1000}`))
	}},
	"far-commit": {"table_unsupported", "is missing, version 1000000 exists", func(x *tampered) {
		x.put("00000000000001000000.json", nil)
	}},
	"missing-commit": {"table_unsupported", "version 1 is missing", func(x *tampered) {
		if err := x.store.Delete(x.l.T.Context(), deltalog.CommitKey(1)); err != nil {
			x.l.T.Fatal(err)
		}
	}},
	"garbage-commit": {"table_unsupported", "line 1: the log is corrupt: not a JSON object", func(x *tampered) {
		x.commit("\x00\x01PAR1")
	}},
	"no-int-position": {"table_unsupported", "txn: json: cannot unmarshal number 9223372036854775808", func(x *tampered) {
		x.position("9223372036854775808")
	}},
	"largest-position":  {"ahead_of_log_end", "9223372036854775807", func(x *tampered) { x.position("9223372036854775807") }},
	"negative-position": {"behind_log_start", "-9223372036854775808", func(x *tampered) { x.position("-9223372036854775808") }},
	"later-protocol": {"table_unsupported", "writer 2147483647", func(x *tampered) {
		x.commit(`{"protocol":{"minReaderVersion":2147483647,"minWriterVersion":2147483647}}`)
	}},
	"deep-schema": {"table_unsupported", "types are nested deeper than 64", func(x *tampered) {
		text := `"long"`
		for range 2000 {
			text = `{"type":"array","containsNull":true,"elementType":` + text + `}`
		}
		text = `{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":` + text + `}]}`
		x.commit(fmt.Sprintf(`{"metaData":{"id":%q,"format":{"provider":"parquet"},"schemaString":%q}}`, x.state.Metadata.ID, text))
	}},
	"long-line": {"table_unsupported", "read version 3: the log is corrupt: a line of more than 8388608 bytes", func(x *tampered) {
		x.commit(`{"commitInfo":{"x":"` + strings.Repeat("x", 9<<20) + `"}}`)
	}},
	"many-fields": {"table_unsupported", "a line that takes more than 33554432 bytes once it is parsed", func(x *tampered) {
		x.commit(`{` + strings.Repeat(`"a":1,`, 1<<20) + `"b":1}`)
	}},
	"many-positions": {"table_unsupported", "its positions and metadata take more than 16777216 bytes", func(x *tampered) {
		var lines []string
		for i := range 200_000 {
			lines = append(lines, fmt.Sprintf(`{"txn":{"appId":"%d","version":1}}`, i))
		}
		x.commit(lines...)
	}},
	"large-hint": {"", "", func(x *tampered) { x.put("_last_checkpoint", bytes.Repeat([]byte(" "), 20<<20)) }},
	"absurd-hint": {"", "", func(x *tampered) {
		x.put("_last_checkpoint", []byte(`{"version":9223372036854775807,"parts":9223372036854775807}`))
	}},
	"other-files": {"", "", func(x *tampered) {
		x.put("09223372036854775807.crc", nil)
		x.put("09223372036854775807.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", nil)
		x.put("00000000000000000001.09223372036854775807.compacted.json", nil)
		x.put("_sidecars/09223372036854775807.parquet", nil)
	}},
}

// TestHostileLake runs a member whose tables have hostileInputs in their logs. The member must hold each such topic
// with a detail that says what to do, and the other tables must continue.
func TestHostileLake(t *testing.T) {
	t.Parallel()
	topics := slices.Sorted(maps.Keys(hostileInputs))
	l := newLake(t, "topics: {sound: {}, "+strings.Join(topics, ": {}, ")+": {}}")
	for _, topic := range append(topics, "sound") {
		l.Create(topic, 1)
		l.Produce(topic, 3, 0)
	}
	l.runs(0, "run", "--until-current")
	for _, topic := range topics {
		hostileInputs[topic].put(l.tamper(topic))
	}
	stray := entryFile(l, "9223372036854775807")
	if err := os.MkdirAll(strings.TrimSuffix(stray, "09223372036854775807.json"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, topic := range append(topics, "sound") {
		l.Produce(topic, 2, 0)
	}
	s := l.start()
	want := map[string]string{}
	for topic, input := range hostileInputs {
		if input.reason != "" {
			want[topic] = input.reason
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("holds: %+v", s.Report().Holds)
		}
	})
	l.Await("the tampered tables hold, and they alone", func() bool {
		got := map[string]string{}
		for _, h := range s.Report().Holds {
			got[h.Topic] = h.Reason
		}
		return maps.Equal(want, got)
	})
	for _, h := range s.Report().Holds {
		if detail := hostileInputs[h.Topic].detail; !strings.Contains(h.Detail, detail) {
			t.Errorf("%s: the detail is %q, want %q", h.Topic, h.Detail, detail)
		}
	}
	for topic, input := range hostileInputs {
		if input.reason == "" {
			l.Awaits(topic, laketest.UpTo(5, topic+":0"))
		}
	}
	l.Produce("sound", 2, 0)
	l.Awaits("sound", laketest.UpTo(7, "sound:0"))
}
