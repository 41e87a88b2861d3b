package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/admin"
	"sluice/internal/app"
	"sluice/sink/opslog"
)

// send produces one record with the timestamp at, and with id in its value and in a header.
func (l *lake) send(topic, id string, at time.Time) {
	l.T.Helper()
	r := &kgo.Record{
		Topic: topic, Value: []byte(`{"n":1,"id":"` + id + `"}`), Timestamp: at,
		Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(id)}},
	}
	if err := l.Client.ProduceSync(l.T.Context(), r).FirstErr(); err != nil {
		l.T.Fatal(err)
	}
}

const lakeOfTwins = `
defaults: {schema: "n int, id string", commit: {every: 100ms}, bad_records: hold}
topics: {orders: {identity: {by: 'field:id'}}, users: {identity: {by: 'header:event-id'}}, plain: {}}`

// TestDuplicates_AcrossRuns sends a record again before later runs of the connector. It must become no row within the
// window of 24 hours, and a row after that.
func TestDuplicates_AcrossRuns(t *testing.T) {
	l := newLake(t, lakeOfTwins)
	topics, first := []string{"orders", "users", "plain"}, time.Now().Add(-72*time.Hour).Truncate(time.Second)
	for _, topic := range topics {
		l.Create(topic, 1)
	}
	for _, later := range []time.Duration{0, time.Second, 24*time.Hour - time.Minute, 24*time.Hour + time.Minute} {
		for _, topic := range topics {
			l.send(topic, "e-1", first.Add(later))
		}
		l.runs(0, "run", "--until-current")
	}
	l.Has("orders", map[string][]int64{"orders:0": {0, 3}})
	l.Has("users", map[string][]int64{"users:0": {0, 3}})
	l.Has("plain", map[string][]int64{"plain:0": {0, 1, 2, 3}})

	out, _ := l.runs(0, "verify", "--kafka")
	if strings.Count(out, "DUPLICATES") != 2 || strings.Count(out, "the rows are those of the topic") != 3 {
		t.Error(out)
	}
	out, _ = l.runs(0, "fingerprints", "stats", "--topic", "users", "--output", "json")
	var w admin.WindowReport
	if err := json.Unmarshal([]byte(out), &w); err != nil || w.Identity != "header:event-id" || len(w.Partitions) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	if p, newest := w.Partitions[0], first.Add(24*time.Hour+time.Minute); p.Topic != "users" || p.Entries != 1 || p.None != 0 || p.Reset != 0 ||
		!p.Newest.Equal(newest) || !p.From.Equal(newest.Add(-24*time.Hour)) {
		t.Errorf("%+v", p)
	}
	if out, _ = l.runs(0, "fingerprints", "stats"); !strings.Contains(out, "orders: identity field:id") || !strings.Contains(out, "plain: identity none") {
		t.Error(out)
	}

	// A reset forgets the fingerprints of the rows that are in the table now. Fingerprints of later rows count again.
	out, _ = l.runs(0, "fingerprints", "reset", "orders", "--dry-run", "--output", "json")
	var plan admin.ResetPlan
	if err := json.Unmarshal([]byte(out), &plan); err != nil || plan.Topic != "orders" || plan.Kind != opslog.KindForget || len(plan.Below) != 1 || plan.Below[0].Offset != 4 {
		t.Errorf("%v: %s", err, out)
	}
	if head := l.state().Head(); head.Seq != 0 {
		t.Errorf("a dry run wrote %v", head)
	}
	out, _ = l.runs(0, "fingerprints", "reset", "orders", "--operator", "ada", "--reason", "corrected", "--yes")
	if !strings.HasPrefix(out, "the fingerprints of orders are forgotten, as far as table orders goes: partition 0 below offset 4 (operation 1); members follow within") {
		t.Error(out)
	}
	for _, topic := range []string{"orders", "orders", "users"} {
		l.send(topic, "e-1", first.Add(25*time.Hour))
	}
	l.runs(0, "run", "--until-current")
	l.Has("orders", map[string][]int64{"orders:0": {0, 3, 4}})
	l.Has("users", map[string][]int64{"users:0": {0, 3}})
	if out, _ = l.runs(0, "audit", "list"); !strings.Contains(out, "fingerprints reset orders in table orders: partition 0 below offset 4") {
		t.Error(out)
	}
	l.runs(0, "fingerprints", "reset", "orders", "--reason", "again", "--yes")
	if out, errs := l.runs(0, "fingerprints", "reset", "orders", "--reason", "again", "--yes"); out != "" || !strings.Contains(errs, "nothing of orders is remembered\nnothing to do") {
		t.Errorf("%q %q", out, errs)
	}
}

// TestFingerprintsReset_RunningMember expects a running member to apply a reset without a restart.
func TestFingerprintsReset_RunningMember(t *testing.T) {
	t.Parallel()
	l := newLake(t, lakeOfTwins)
	now := time.Now().Truncate(time.Second)
	for _, topic := range []string{"orders", "users", "plain"} {
		l.Create(topic, 1)
	}
	s := l.start()
	l.send("orders", "e-1", now)
	l.send("orders", "e-1", now)
	l.Awaits("orders", map[string][]int64{"orders:0": {0}})
	l.Await("the duplicate has settled", func() bool {
		return sumOf(t, s, "sluice_fingerprints") == 1 && l.counted(s, "sluice_duplicates_total") == 1
	})
	l.runs(0, "fingerprints", "reset", "orders", "--reason", "again", "--yes")
	l.Await("the member knows", func() bool { return s.Report().Operations.Seq == 1 })
	l.send("orders", "e-1", now)
	l.send("orders", "e-1", now)
	l.Awaits("orders", map[string][]int64{"orders:0": {0, 2}})
}

// counted returns the value of a member's counter, summed over its labels.
func (l *lake) counted(s *app.Member, name string) (sum float64) {
	l.T.Helper()
	families, err := s.Registry().Gather()
	if err != nil {
		l.T.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestFingerprintsUsage(t *testing.T) {
	l := newLake(t, lakeOfTwins)
	for _, c := range []struct {
		code       int
		args, want string
	}{
		{2, "fingerprints reset order --reason r --yes", "topic order is not in topics"},
		{2, "fingerprints reset plain --reason r --yes", "identity.by: none"},
		{2, "fingerprints reset orders --yes", "--reason"},
		{2, "fingerprints reset", "accepts 1 arg"},
		{4, "fingerprints reset orders --reason r --yes", "nothing is remembered"},
		{2, "fingerprints stats --topic x", "--topic x is not in topics"},
	} {
		if out, errs := l.runs(c.code, strings.Fields(c.args)...); out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %q %q, want %q", c.args, out, errs, c.want)
		}
	}
}
