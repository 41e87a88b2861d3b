package ops_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/health"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Values for the reports of the table below.
var (
	since    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	checked  = since.Add(10 * time.Minute)
	seen     = since.Add(9 * time.Minute)
	seconds  = 3.25
	fresh    = 42.5
	someLag  = int64(5)
	tooMuch  = int64(10_500)
	lastSeen = since.Add(8 * time.Minute)
)

// healthy returns the report of a member with all features, without a fault, after change has changed it.
func healthy(change func(*health.Report)) health.Report {
	r := health.Report{
		Pipeline: "orders", Group: "orders", Brokers: []string{"kafka-1:9092", "kafka-2:9092"},
		Joined: true, Resumed: true, Started: true, Tested: true,
		Partitions: []health.Partition{
			{Topic: "orders", ID: 0, Position: 10, End: 15, Table: "orders", Verdict: health.VerdictOK, Level: health.LevelOK, Freshness: &fresh},
			{Topic: "orders", ID: 1, Position: 20, End: 20, Table: "orders", Verdict: health.VerdictOK, Level: health.LevelOK},
			{Topic: "users", ID: 0, Position: -1, End: -1, Table: "users"},
		},
		Dependencies: []health.Dependency{
			{Name: "store", Table: "orders"},
			{Name: "dead_letters", Table: "orders"},
			{Name: "store", Table: "users"},
			{Name: "dead_letters", Table: "users"},
			{Name: "kafka"},
			{Name: "postgres"},
			{Name: "operations_log"},
		},
		Canary: &health.Canary{Topic: "orders-canary", Seen: &seen, Seconds: &seconds},
		Lag: &health.LagStatus{
			Healthy: true, PartitionLags: map[string]int64{"orders:0": 5, "orders:1": 0}, LastCheckTime: checked,
		},
		Letters: &health.Letters{Unresolved: []health.UnresolvedLetters{}},
		Members: &health.Members{
			Status: health.MembersOK, Reason: "2 active consumers",
			Members: []health.Member{
				{ID: "host-1-1a2b3c4d", Status: "RUNNING", Seconds: 1.5, Active: true, LastRecord: &lastSeen, Lag: &someLag},
				{ID: "host-2-5e6f7a8b", Status: "RUNNING", Seconds: 9, Active: true},
			},
		},
		Memory:     []health.Pool{{Name: "fetch", Size: 1000, Used: 10}, {Name: "batch", Size: 4000, Used: 3999}},
		Queued:     12,
		Operations: &health.Operations{Known: true, Seq: 7},
	}
	change(&r)
	return r
}

// reports are states of a connector. Each has a golden file with the responses of all addresses.
var reports = []struct {
	name   string
	report health.Report
}{
	{"healthy", healthy(func(*health.Report) {})},
	{"least", health.Report{Pipeline: "p", Group: "g", Joined: true, Resumed: true, Started: true, Tested: true}},
	{"new", health.Report{Pipeline: "p", Group: "g", Operations: &health.Operations{}}},
	{"starting_without_store", health.Report{
		Pipeline: "p", Group: "g", Operations: &health.Operations{},
		Holds: []health.Hold{{Partition: -1, Reason: "store_denied", Detail: "access denied", Since: since, Offset: -1}},
	}},
	{"starting_without_kafka", health.Report{
		Pipeline: "p", Group: "g", Tested: true, Operations: &health.Operations{Known: true},
		Holds:        []health.Hold{{Partition: -1, Reason: "kafka_denied", Detail: "certificate expired", Since: since, Offset: -1}},
		Dependencies: []health.Dependency{{Name: "kafka"}, {Name: "kafka group", Failing: &since, Error: "certificate expired"}},
	}},
	{"not_looked_at_yet", healthy(func(r *health.Report) {
		r.Lag, r.Letters, r.Members = &health.LagStatus{Healthy: true}, &health.Letters{}, &health.Members{}
		r.Canary = &health.Canary{Topic: "orders-canary"}
	})},
	{"joining_again", healthy(func(r *health.Report) { r.Joined = false })},
	{"draining", healthy(func(r *health.Report) { r.Draining, r.Joined = true, false })},
	{"some_partitions_held", healthy(func(r *health.Report) {
		r.Holds = []health.Hold{
			{Topic: "orders", Partition: 0, Reason: "poison", Detail: "n: not a number", Since: since, Offset: 10},
			{Topic: "orders", Partition: 1, Reason: "paused", Detail: "by ann: a test", Since: since, Offset: 20},
			{Topic: "payments", Partition: -1, Reason: "topic_missing", Detail: "topic payments does not exist", Since: since, Offset: -1},
		}
	})},
	{"all_partitions_held", healthy(func(r *health.Report) {
		for i, reason := range []string{"behind_log_start", "oversize", "flood"} {
			p := r.Partitions[i]
			r.Holds = append(r.Holds, health.Hold{Topic: p.Topic, Partition: p.ID, Reason: reason, Detail: "so it is", Since: since, Offset: 7})
		}
	})},
	{"a_topic_is_missing", healthy(func(r *health.Report) {
		r.Holds = []health.Hold{{Topic: "payments", Partition: -1, Reason: "topic_missing", Detail: "topic payments does not exist", Since: since, Offset: -1}}
	})},
	{"store_of_a_table_down", healthy(func(r *health.Report) {
		r.Dependencies[0] = health.Dependency{Name: "store", Table: "orders", Open: true, Failing: &since, Error: "timeout"}
		r.Holds = []health.Hold{
			{Topic: "orders", Partition: 0, Reason: "store_down", Detail: "timeout", Since: since, Offset: 10},
			{Topic: "orders", Partition: 1, Reason: "store_down", Detail: "timeout", Since: since, Offset: 20},
		}
	})},
	{"store_down", healthy(func(r *health.Report) {
		for _, i := range []int{0, 2} {
			r.Dependencies[i].Open, r.Dependencies[i].Failing, r.Dependencies[i].Error = true, &since, "timeout"
		}
	})},
	{"kafka_fails", healthy(func(r *health.Report) {
		r.Dependencies = append(r.Dependencies, health.Dependency{Name: "kafka broker 2", Failing: &since, Error: "connection refused"})
	})},
	{"kafka_down", healthy(func(r *health.Report) {
		r.Dependencies[4].Open, r.Dependencies[4].Failing, r.Dependencies[4].Error = true, &since, "no broker answers"
		r.Dependencies = append(r.Dependencies, health.Dependency{Name: "kafka broker 2", Failing: &since, Error: "connection refused"})
		for _, p := range r.Partitions {
			r.Holds = append(r.Holds, health.Hold{Topic: p.Topic, Partition: p.ID, Reason: "kafka_down", Detail: "no broker answers", Since: since, Offset: p.Position})
		}
	})},
	{"members_idle", healthy(func(r *health.Report) {
		r.Members.Findings = []health.MemberFinding{{ID: "host-2-5e6f7a8b", Severity: health.LevelWarning, Finding: "no record for 5m10s"}}
	})},
	{"lag_unhealthy", healthy(func(r *health.Report) {
		r.Partitions[0].End, r.Partitions[0].Verdict, r.Partitions[0].Level = 10_510, health.VerdictWarn, health.LevelCritical
		r.Lag.Healthy, r.Lag.Reason = false, "Partition 0 lag (10500) exceeds maximum (10000)"
		r.Lag.PartitionLags["orders:0"] = 10_500
		r.Partitions[0].Adjusted = &tooMuch
	})},
	{"lag_not_known", healthy(func(r *health.Report) { r.Lag.Error = "partition orders:1: no leader" })},
	{"lag_of_held_partition", healthy(func(r *health.Report) {
		r.Partitions[0].Verdict = health.VerdictHeld
		r.Holds = []health.Hold{{Topic: "orders", Partition: 0, Reason: "paused", Detail: "by ann: a test", Since: since, Offset: 10}}
	})},
	{"lag_warning", healthy(func(r *health.Report) {
		r.Partitions[0].End, r.Partitions[0].Level = 510, health.LevelWarning
		r.Lag.PartitionLags["orders:0"] = 500
	})},
	{"members_degraded", healthy(func(r *health.Report) {
		r.Members.Status, r.Members.Reason = health.MembersDegraded, "stale consumers: host-2-5e6f7a8b"
		r.Members.Members[1].Active, r.Members.Members[1].Seconds = false, 75
		r.Members.Findings = []health.MemberFinding{{ID: "host-2-5e6f7a8b", Severity: health.LevelCritical, Finding: "has not sent heartbeat for 75s"}}
	})},
	{"members_unknown", healthy(func(r *health.Report) {
		r.Members = &health.Members{Status: health.MembersUnknown, Reason: "redis: dial tcp 10.0.0.1:6379: connection refused"}
	})},
	{"letters", healthy(func(r *health.Report) {
		r.Letters = &health.Letters{
			Unresolved: []health.UnresolvedLetters{{Topic: "orders", Class: "poison", Count: 3}, {Topic: "users", Class: "poison", Count: 1}}, PerMinute: 0.8,
		}
	})},
	{"letters_unknown", healthy(func(r *health.Report) { r.Letters = &health.Letters{Error: "orders-dlq: timeout"} })},
	{"letters_cannot_be_written", healthy(func(r *health.Report) {
		r.Dependencies[1] = health.Dependency{Name: "dead_letters", Table: "orders", Open: true, Failing: &since, Error: "not authorized"}
		r.Holds = []health.Hold{{Topic: "orders", Partition: 0, Reason: "dead_letters_unavailable", Detail: "not authorized", Since: since, Offset: 10}}
	})},
	{"canary_fails", healthy(func(r *health.Report) {
		r.Canary.Failing, r.Canary.Stage, r.Canary.Error = &since, "visible", "not seen within 1m0s"
	})},
	{"memory_full", healthy(func(r *health.Report) { r.Memory[1].Used, r.Paused, r.Queued = 4000, true, 10_100 })},
	{"fingerprints_in_memory", healthy(func(r *health.Report) {
		r.Dependencies = append(r.Dependencies[:5:5], r.Dependencies[6])
		r.Fingerprints = []health.Fingerprints{{Topic: "orders", Entries: 1000, Bytes: 23_000}, {Topic: "users"}}
		r.Memory = append(r.Memory, health.Pool{Name: "fingerprints", Size: 100_000, Used: 23_000})
	})},
	{"fingerprints_unavailable", healthy(func(r *health.Report) {
		r.Dependencies[5] = health.Dependency{Name: "postgres", Open: true, Failing: &since, Error: "connection refused"}
	})},
	{"operations_log_broken", healthy(func(r *health.Report) {
		r.Dependencies[6] = health.Dependency{Name: "operations_log", Failing: &since, Error: "entry 8 does not follow 7"}
	})},
	{"operations_unknown", healthy(func(r *health.Report) {
		r.Operations, r.Started, r.Joined, r.Resumed = &health.Operations{}, false, false, false
		r.Holds = []health.Hold{{Partition: -1, Reason: "operations_log", Detail: "entry 8 does not follow 7", Since: since, Offset: -1}}
	})},
	{"everything_unknown", healthy(func(r *health.Report) {
		r.Members = &health.Members{Status: health.MembersUnknown, Reason: "redis: i/o timeout"}
		r.Letters = &health.Letters{Error: "orders-dlq: i/o timeout"}
		r.Lag, r.Canary = &health.LagStatus{Healthy: true}, nil
	})},
}

// addresses are the addresses whose responses are in the golden files.
var addresses = []string{
	"/health/live", "/health/ready", "/health/startup", "/health", "/actuator/health", "/actuator/health/liveness", "/actuator/health/readiness",
}

func TestAnswers(t *testing.T) {
	c := &connector{}
	base, _ := start(t, c)
	for _, at := range reports {
		t.Run(at.name, func(t *testing.T) {
			c.set(func(c *connector) { c.report = at.report })
			var got strings.Builder
			codes := map[string]int{}
			for _, address := range addresses {
				code, body, _ := request(t, http.MethodGet, base+address)
				codes[address] = code
				fmt.Fprintf(&got, "GET %s %d\n%s\n", address, code, short(t, body))
			}
			file := filepath.Join("testdata", at.name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got.String()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			ready := 503
			if at.report.Ready() == nil {
				ready = 200
			}
			for address, want := range map[string]int{
				"/health/live": 200, "/actuator/health/liveness": 200, "/health/ready": ready, "/health": ready, "/actuator/health": ready,
				"/actuator/health/readiness": ready, "/health/startup": map[bool]int{true: 200, false: 503}[at.report.Started],
			} {
				if codes[address] != want {
					t.Errorf("%s answers %d, want %d", address, codes[address], want)
				}
			}
		})
	}
}

// short formats a JSON object with one line for each field, and one for each component.
func short(t *testing.T, body string) string {
	t.Helper()
	var b strings.Builder
	lines(t, &b, "", []byte(body))
	return b.String()
}

func lines(t *testing.T, b *strings.Builder, indent string, object []byte) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(object))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		t.Fatalf("no object: %s", object)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		if name == "components" {
			fmt.Fprintf(b, "%s%s:\n", indent, name)
			lines(t, b, indent+"  ", value)
			continue
		}
		var text bytes.Buffer
		if err := json.Compact(&text, value); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "%s%s: %s\n", indent, name, &text)
	}
}
