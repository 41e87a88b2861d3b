package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/reliability"
)

// TestDocsRecordRetry loads the examples of the page about record_retry and compares their pauses with those on the
// page.
func TestDocsRecordRetry(t *testing.T) {
	page, err := os.ReadFile("../../docs/record-retry.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for i, block := range strings.Split(string(page), "```yaml\n")[1:] {
		example, _, _ := strings.Cut(block, "```")
		path := filepath.Join(t.TempDir(), "config.yaml")
		text := "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///data}\ndefaults: {schema: a int}\n" + example
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, problems := Load(path, func(string) (string, bool) { return "", false })
		if len(problems) > 0 {
			t.Fatalf("example %d: %v", i, problems)
		}
		for name, topic := range c.Topics {
			r := c.RecordRetry(topic)
			for n := range r.Attempts() {
				got[name] = append(got[name], r.Pause(n+1).String())
			}
		}
	}
	long := []string{"1s", "5s", "30s", "5m0s", "30m0s"}
	want := map[string][]string{
		"ton.deposits": long, "escrow.payouts": long, "escrow.refunds": long,
		"deal.deadlines": {"1s", "5s", "30s"}, "delivery.posts": {"1s", "10s", "1m0s"}, "delivery.verifications": {"1s", "10s", "1m0s"},
		"reconciliation.triggers": {"5s", "1m0s"},
		"orders":                  {"10s", "20s", "30s", "40s", "50s"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("pauses (-want +got):\n%s", d)
	}
}

// TestRecordRetryOfTopics: keys that a topic's entry leaves out come from defaults. The longest pause and the jitter
// come from the section retry.
func TestRecordRetryOfTopics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := `pipeline: p
kafka: {brokers: [a:1]}
storage: {url: file:///data}
retry: {max: 10s, jitter: 10%}
defaults: {schema: a int, record_retry: {max: 4}}
topics:
  a: {}
  b: {record_retry: {backoff: schedule, schedule: [1s, 1s]}}
  c: {record_retry: {backoff: linear, wait: 2s}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, problems := Load(path, func(string) (string, bool) { return "", false })
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for name, want := range map[string]reliability.RecordRetry{
		"a": {Max: 4, Wait: time.Second, Curve: reliability.Exponential, Cap: 10 * time.Second, Jitter: 0.1},
		"b": {Max: 4, Wait: time.Second, Curve: reliability.Scheduled, Schedule: []time.Duration{time.Second, time.Second}, Cap: 10 * time.Second, Jitter: 0.1},
		"c": {Max: 4, Wait: 2 * time.Second, Curve: reliability.Linear, Cap: 10 * time.Second, Jitter: 0.1},
	} {
		if d := cmp.Diff(want, c.RecordRetry(c.Topics[name])); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
