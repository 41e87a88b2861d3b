package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
)

func TestStartOfTopics(t *testing.T) {
	for text, want := range map[string]connector.Start{
		"topics: {orders: {}}":              {Policy: "earliest"},
		"topics: {orders: {start: latest}}": {Policy: "latest"},
		"topics: {orders: {start: timestamp, start_at: 2026-01-31T08:00:00Z}}": {
			Policy: "timestamp", At: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC),
		},
		"topics: {orders: {start: timestamp, start_at: 36h}}": {Policy: "timestamp", Back: 36 * time.Hour},
		"topics: {orders: {start: explicit, start_at: {0: 12, 3: 0, others: latest}}}": {
			Policy: "explicit", Offsets: map[int32]int64{0: 12, 3: 0}, Others: "latest",
		},
		"topics: {orders: {start: explicit, start_at: {0: \"${FIRST}\"}}}": {Policy: "explicit", Offsets: map[int32]int64{0: 77}},
		// start_at in defaults holds only for topics with start: timestamp.
		"defaults: {start: timestamp, start_at: 1h}\ntopics: {orders: {}}":                {Policy: "timestamp", Back: time.Hour},
		"defaults: {start: timestamp, start_at: 1h}\ntopics: {orders: {start: earliest}}": {Policy: "earliest"},
		"defaults: {start_at: 1h}\ntopics: {orders: {start: timestamp}}":                  {Policy: "timestamp", Back: time.Hour},
	} {
		if !strings.Contains(text, "defaults:") {
			text += "\ndefaults: {schema: a int}"
		} else {
			text = strings.Replace(text, "defaults: {", "defaults: {schema: a int, ", 1)
		}
		text += "\npipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///data}"
		c := mustLoad(t, write(t, text), map[string]string{"FIRST": "77"})
		_, topic := onlyTopic(t, c)
		if d := cmp.Diff(want, topic.ReadFrom()); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
		// What config print prints has the same start when it is loaded.
		var printed strings.Builder
		if err := c.PrintYAML(&printed); err != nil {
			t.Fatal(err)
		}
		_, again := onlyTopic(t, mustLoad(t, write(t, printed.String()), nil))
		if d := cmp.Diff(want, again.ReadFrom()); d != "" {
			t.Errorf("printed:\n%s\n(-want +got):\n%s", printed.String(), d)
		}
	}
}
