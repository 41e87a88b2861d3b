package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/health"
	"sluice/internal/app"
	"sluice/internal/laketest"
)

// everything starts a connector with all features that have metrics, and waits until it has rows, duplicates and bad
// records. out is the connector's log.
func everything(t *testing.T) (s *app.Member, out *laketest.Log) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("redis://"+miniredis.RunT(t).Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	mirror := filepath.Join(t.TempDir(), "mirror") // nothing listens there, and nothing waits for it
	if err := os.WriteFile(mirror, []byte("postgres://127.0.0.1:1/d?sslmode=disable"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLake(t, `
defaults: {schema: "n int", commit: {every: 100ms}, identity: {by: "field:n"}}
topics: {orders: {}}
members: {store: redis, url_file: "`+filepath.ToSlash(file)+`", beat: 1s, ttl: 10s}`)
	withProbes(t, l, "canary: {topic: p-canary}")
	l = l.as(`ops: {listen: ""}`, `ops: {listen: "127.0.0.1:0", mirror_url_file: "`+filepath.ToSlash(mirror)+`"}`)
	l.Create("orders", 1)
	l.Produce("orders", 3, 0)
	more := []*kgo.Record{{Topic: "orders", Value: []byte(`{"n":2}`)}, {Topic: "orders", Value: []byte("no JSON")}}
	if err := l.Client.ProduceSync(t.Context(), more...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.Logger, out = newLogged(t)
	s = l.start()
	l.Awaits("orders", map[string][]int64{"orders:0": {0, 3}})
	l.Await("its status shows that all of it is in the table", func() bool {
		return slices.ContainsFunc(s.Report().Partitions, func(p health.Partition) bool { return p.Topic == "orders" && p.Position == 5 })
	})
	l.Await("its heartbeat", func() bool { return sumOf(t, s, "sluice_member_beats_total") > 0 })
	return s, out
}

// withProbes makes the connector of a lake serve probes at a free port. more has other keys of the section health.
func withProbes(t *testing.T, l *lake, more ...string) {
	t.Helper()
	section := "health: {" + strings.Join(append(more, `listen: "127.0.0.1:0"`), ", ") + "}"
	if err := os.WriteFile(l.Config, []byte(strings.ReplaceAll(read(t, l.Config), "health: {enabled: false}", section)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// scrape returns the metrics of the running connector that writes this log, from the address in the log.
func scrape(t *testing.T, out *laketest.Log) string {
	t.Helper()
	address, ok := out.Lines(t, "health")[0]["address"].(string)
	if !ok {
		t.Fatal("no line says where metrics are")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v\n%s", answer.Status, err, body)
	}
	return string(body)
}

// series returns the samples of a scrape: name and labels of each.
func series(text string) (all []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			all = append(all, line[:strings.LastIndex(line, " ")])
		}
	}
	slices.Sort(all)
	return all
}

// TestMetrics_Required expects a scrape to have each metric that the requirements of the connector ask for. The field
// sample has the name and the labels of the metric.
func TestMetrics_Required(t *testing.T) {
	t.Parallel()
	_, out := everything(t)
	text := scrape(t, out)
	for _, want := range []struct{ asked, kind, sample string }{
		{"kafka_consumer_lag", "gauge", `kafka_consumer_lag{group="p",partition="0",topic="orders"} `},
		{"kafka_consumer_total_lag", "gauge", `kafka_consumer_total_lag{group="p"} `},
		{"kafka_consumer_healthy", "gauge", `kafka_consumer_healthy{group="p"} `},
		{"worker.heartbeat.timestamp", "gauge", `worker_heartbeat_timestamp{consumer_id="`},
		{"consumer.heartbeat.age, by consumer_id", "gauge", `consumer_heartbeat_age{consumer_id="`},
		{"worker.dlq.messages, by topic", "counter", `worker_dlq_messages_total{topic="orders"} 1`},
		{"worker.dlq.replayed", "counter", `worker_dlq_replayed_total{topic="orders"} 0`},
		{"worker.retry.count, by worker and error; retry attempts by topic", "counter", `worker_retry_count_total{error="unknown",topic="orders",worker="p"} 0`},
		{"messages processed", "counter", `sluice_rows_committed_total{topic="orders"} 2`},
		{"messages failed, not retriable", "counter", `sluice_records_failed_total{class="poison",topic="orders"} 1`},
		{"messages failed, retriable", "counter", `sluice_records_failed_total{class="transient",topic="orders"} 0`},
		{"messages sent to the dead-letter queue, by reason", "counter", `sluice_dead_letters_total{reason="syntax",topic="orders"} 1`},
		{"processing latency", "histogram", `sluice_processing_seconds_bucket{le="60"} `},
		{"circuit breaker state", "gauge", `sluice_breaker_state{dependency="kafka",table=""} 0`},
		{"circuit breaker state, of the store", "gauge", `sluice_breaker_state{dependency="store",table="orders"} 0`},
		{"circuit breaker state changes", "counter", `sluice_breaker_changes_total{dependency="kafka",table="",to="open"} 0`},
		{"duplicate messages detected", "counter", `sluice_duplicates_total{topic="orders"} 2`},
		{"idempotency cache hit rate, hits", "counter", `sluice_fingerprint_lookups_total{result="hit",topic="orders"} 2`},
		{"idempotency cache hit rate, the rest", "counter", `sluice_fingerprint_lookups_total{result="miss",topic="orders"} 2`},
		{"S3 write latency", "histogram", `sluice_store_operation_seconds_bucket{operation="put",outcome="ok",le="1"} `},
		{"S3 write latency, of commits", "histogram", `sluice_store_operation_seconds_bucket{operation="put-if-absent",outcome="ok",le="1"} `},
		{"Delta transaction success rate", "counter", `sluice_delta_commits_total{result="committed",table="orders"} `},
		{"Delta transaction success rate, failures", "counter", `sluice_delta_commits_total{result="conflict",table="orders"} `},
		{"time of the last message", "gauge", `sluice_last_record_timestamp_seconds{partition="0",topic="orders"} `},
		{"PAUSED", "counter", `sluice_backpressure_started_total 0`},
		{"RESUMED", "counter", `sluice_backpressure_ended_total 0`},
		{"freshness", "histogram", `sluice_freshness_seconds_bucket{le="60"} `},
		{"duration of commits", "histogram", `sluice_commit_seconds_bucket{le="`},
		{"file sizes", "histogram", `sluice_delta_file_size_bytes_bucket{table="orders",le="`},
		{"rows of batches", "histogram", `sluice_batch_rows_bucket{le="`},
		{"Go", "gauge", "go_goroutines "},
		{"the process", "gauge", "process_resident_memory_bytes "},
	} {
		name := regexp.MustCompile(`^[a-z_]+`).FindString(want.sample)
		if want.kind == "histogram" {
			name = strings.TrimSuffix(name, "_bucket")
		}
		if !strings.Contains(text, "\n# TYPE "+name+" "+want.kind+"\n") {
			t.Errorf("%s: no %s %s", want.asked, want.kind, name)
		}
		if !strings.Contains(text, "\n"+want.sample) {
			var have []string
			for _, s := range series(text) {
				if strings.HasPrefix(s, name) {
					have = append(have, s)
				}
			}
			t.Errorf("%s: no %s, but\n%s", want.asked, want.sample, strings.Join(have, "\n"))
		}
	}
	if t.Failed() {
		t.Log(fmt.Sprint(len(series(text)), " series"))
	}
}
