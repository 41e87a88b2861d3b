package intake

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/reliability/hold"
)

// TestStatus_OutageIsHold: while an unreachable dependency stops claims, the status shows them as held. The log has one
// line per table when the outage begins and one when it ends, and the metric counts each claim once.
func TestStatus_OutageIsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		registry := prometheus.NewRegistry()
		m := NewMetrics(registry)
		down, began := map[string]hold.Reason{}, time.Now()
		r := readerOf(t, Config{
			Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})),
			Metrics: m, Queue: connector.QueueConfig{PauseAt: 1, ResumeAt: 1, PerKey: 1},
			Tables: tables{blocked: func(table string, p connector.Partition) *hold.Hold {
				if reason, is := down[table]; is && (reason != hold.KafkaDown || p.ID > 0) {
					return &hold.Hold{Reason: reason, Detail: "connection refused", Since: began}
				}
				return nil
			}},
		})
		for _, name := range []string{"orders", "users"} {
			table := &tableState{name: name, claims: map[connector.Partition]*claim{}}
			r.tables = append(r.tables, table)
			for id := range int32(3) {
				p := connector.Partition{Topic: name, ID: id}
				r.claims[p] = &claim{Partition: p, table: table, claimState: claimState{state: reading}, laneProgress: &lane.Progress{}}
			}
		}
		shows := func(want ...string) {
			t.Helper()
			for range 10 { // showing the status again must not log or count again
				time.Sleep(time.Second)
				r.status.show()
			}
			var lines []string
			if text := strings.TrimSpace(out.String()); text != "" {
				lines = strings.Split(text, "\n")
			}
			slices.Sort(lines)
			if !slices.Equal(lines, want) {
				t.Errorf("the log has\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
			out.Reset()
		}
		counts := func(reason hold.Reason, want float64) {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, c := range f.GetMetric() {
					if f.GetName() == "sluice_holds_total" && c.GetLabel()[0].GetValue() == string(reason) && c.GetCounter().GetValue() != want {
						t.Errorf("%s counts %v, want %v", reason, c.GetCounter().GetValue(), want)
					}
				}
			}
		}
		shows()
		down["orders"], down["users"] = hold.StoreDown, hold.KafkaDown
		shows(`level=WARN msg=HOLD table=orders reason=store_down detail="connection refused" claims=3`,
			`level=WARN msg=HOLD table=users reason=kafka_down detail="connection refused" claims=2`)
		counts(hold.StoreDown, 3)
		counts(hold.KafkaDown, 2)
		delete(down, "orders")
		shows(`level=INFO msg="hold ended" table=orders reason=store_down claims=3 after=21s`)
		down["orders"] = hold.StoreDown
		shows(`level=WARN msg=HOLD table=orders reason=store_down detail="connection refused" claims=3`)
		counts(hold.StoreDown, 6)
		counts(hold.KafkaDown, 2)
	})
}
