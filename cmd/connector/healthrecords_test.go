package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/internal/admin"
	"sluice/internal/laketest"
)

// check produces a record with a valid value and these headers, given as name and value in turns.
func (l *lake) check(topic string, headers ...string) {
	l.T.Helper()
	r := &kgo.Record{Topic: topic, Value: []byte(`{"n":7}`)}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	if err := l.Client.ProduceSync(l.T.Context(), r).FirstErr(); err != nil {
		l.T.Fatal(err)
	}
}

// counted returns the values of a counter by topic.
func counted(t *testing.T, reg prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if f.GetName() == name && label.GetName() == "topic" {
					values[label.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	return values
}

// TestHealthCheckRecords expects a record with the header HEALTHCHECK=TRUE to become no row, to be counted, and not to
// count as lost for verify. If a secret is configured, only records with the secret are left out.
func TestHealthCheckRecords(t *testing.T) {
	t.Parallel()
	l := newLake(t, `
defaults: {schema: "n int", commit: {every: 100ms}, health_records: {secret_file: secret}}
topics: {orders: {health_records: {secret_file: ""}}, guarded: {}, kept: {health_records: {drop: false}}}`)
	secret := filepath.Join(l.Dir, "secret")
	write := func(text string) {
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	for _, topic := range []string{"orders", "guarded", "kept"} {
		l.Create(topic, 1)
		l.Produce(topic, 1, 0)                                                        // offset 0
		l.check(topic, "HEALTHCHECK", "TRUE")                                         // offset 1
		l.check(topic, "HEALTHCHECK", "TRUE", connector.HealthSecretHeader, "first")  // offset 2
		l.check(topic, "HEALTHCHECK", "TRUE", connector.HealthSecretHeader, "second") // offset 3
		l.check(topic, "HEALTHCHECK", "FALSE", connector.HealthSecretHeader, "first") // offset 4
		l.Produce(topic, 1, 0)                                                        // offset 5
	}
	s := l.start()
	l.Awaits("orders", map[string][]int64{"orders:0": {0, 4, 5}})
	l.Awaits("guarded", map[string][]int64{"guarded:0": {0, 1, 3, 4, 5}})
	l.Awaits("kept", laketest.UpTo(6, "kept:0"))
	if d := cmp.Diff(map[string]float64{"orders": 3, "guarded": 1}, counted(t, s.Registry(), "sluice_health_records_total")); d != "" {
		t.Errorf("dropped (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]float64{"orders": 0, "guarded": 2}, counted(t, s.Registry(), "sluice_health_records_unproven_total")); d != "" {
		t.Errorf("without the secret (-want +got):\n%s", d)
	}

	for topic, dropped := range map[string]int64{"orders": 3, "guarded": 1, "kept": 0} {
		out, _ := l.runs(exitOK, "verify", "--kafka", "--topic", topic, "-o", "json")
		var v admin.Verification
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatal(err)
		}
		if got := v.Partitions[0].Compared; got == nil || got.HealthRecords != dropped {
			t.Errorf("%s: compared %+v, want %d health-check records", topic, got, dropped)
		}
	}
}

// TestVerify_EveryKindOfRecord has a topic with rows, bad records, tombstones, health-check records and duplicates,
// which several runs read. Each record must be handled once according to its kind, and verify must find nothing.
func TestVerify_EveryKindOfRecord(t *testing.T) {
	t.Parallel()
	l := newLake(t, `
defaults: {schema: "n int, id string", commit: {every: 100ms}, bad_records: dead_letter, identity: {by: "field:id"}, health_records: {secret_file: secret}}
topics: {orders: {dead_letters: {archive: none, hold_above: 100%}}}`)
	if err := os.WriteFile(filepath.Join(l.Dir, "secret"), []byte("right"), 0o600); err != nil {
		t.Fatal(err)
	}
	const partitions = 3
	l.Create("orders", partitions)
	rng := rand.New(rand.NewPCG(7, 7))
	rows, letters := map[string][]int64{}, map[string]int{}
	var next [partitions]int64
	var seen [partitions]map[string]bool
	for i := range seen {
		seen[i] = map[string]bool{}
	}
	now := time.Now()
	for range 4 {
		var records []*kgo.Record
		for range 400 {
			p := rng.IntN(partitions)
			at := fmt.Sprintf("orders:%d", p)
			id := fmt.Sprint(rng.IntN(600))
			r := &kgo.Record{Topic: "orders", Partition: int32(p), Key: []byte(id), Timestamp: now, Value: []byte(`{"n":1,"id":"` + id + `"}`)}
			health := func(secret string) {
				r.Headers = []kgo.RecordHeader{{Key: "HEALTHCHECK", Value: []byte("TRUE")}, {Key: connector.HealthSecretHeader, Value: []byte(secret)}}
			}
			kind := rng.IntN(12)
			switch kind {
			case 0:
				r.Value = []byte(`{"n":"bad"}`)
			case 1:
				r.Value = nil
			case 2:
				health("right")
			case 3:
				health("wrong")
			case 4:
				r.Value = []byte(`{`)
				health("wrong")
			case 5:
				r.Value = nil
				health("right")
			}
			switch {
			case kind == 0 || kind == 4:
				letters[fmt.Sprintf("%s@%d", at, next[p])]++
			case kind == 1 || kind == 2 || kind == 5:
			case !seen[p][id]:
				seen[p][id] = true
				rows[at] = append(rows[at], next[p])
			}
			next[p]++
			records = append(records, r)
		}
		if err := l.Client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		_, log := l.runs(exitOK, "run", "--until-current")
		for _, line := range []string{"Skipping duplicate", "DEAD LETTER", "health-check records are dropped", "committed"} {
			if !strings.Contains(log, `"level":"INFO","msg":"`+line+`"`) {
				t.Errorf("no line says %q", line)
			}
		}
		l.Has("orders", rows)
		l.runs(exitOK, "verify", "--kafka")
	}
	out, _ := l.runs(exitOK, "deadletters", "list", "orders", "--limit", "10000", "-o", "json")
	var listed struct {
		Listed []struct {
			Topic     string `json:"topic"`
			Partition int32  `json:"partition"`
			Offset    int64  `json:"offset"`
		} `json:"listed"`
	}
	if err := json.Unmarshal([]byte(out), &listed); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]int{}
	for _, d := range listed.Listed {
		got[fmt.Sprintf("%s:%d@%d", d.Topic, d.Partition, d.Offset)]++
	}
	if d := cmp.Diff(letters, got); d != "" {
		t.Errorf("letters (-want +got):\n%s", d)
	}
}

// TestHealthRecords_DeadLetterTopic expects a dead letter whose record has a health-check header to become a row of the
// letter table.
func TestHealthRecords_DeadLetterTopic(t *testing.T) {
	l := newLake(t, "topics: {orders: {bad_records: dead_letter, health_records: {secret_file: secret}}}")
	if err := os.WriteFile(filepath.Join(l.Dir, "secret"), []byte("right"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.Create("orders", 1)
	bad := &kgo.Record{Topic: "orders", Value: []byte("?"), Headers: []kgo.RecordHeader{{Key: "HEALTHCHECK", Value: []byte("TRUE")}}}
	if err := l.Client.ProduceSync(t.Context(), bad).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.Produce("orders", 1, 0)
	l.start()
	l.Awaits("orders", map[string][]int64{"orders:0": {1}})
	l.Awaits("orders_letters", laketest.UpTo(1, "orders-dlq:0"))
	l.runs(exitOK, "verify", "--kafka", "--topic", "orders") // the record without the secret has a dead letter, so it does not count as lost
}
