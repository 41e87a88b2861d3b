package connector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// logLines returns the attributes of each line of a JSON log, and empties it.
func logLines(t *testing.T, log *bytes.Buffer) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	log.Reset()
	return lines
}

func TestIgnoredNames(t *testing.T) {
	lane, other := ignoredNames{}, ignoredNames{}
	lane.add("orders", []string{"b", "a"}, false)
	lane.add("orders", nil, false)
	other.add("orders", []string{"c", "b"}, false)
	other.add("refunds", []string{"x"}, true)
	lane.merge(other)
	lane.merge(nil)
	want := []IgnoredFields{{Topic: "orders", Names: []string{"a", "b", "c"}}, {Topic: "refunds", Names: []string{"x"}, More: true}}
	if diff := cmp.Diff(want, lane.fields()); diff != "" {
		t.Error(diff)
	}
	for i := range 3 * MaxIgnoredNames {
		lane.add("orders", []string{fmt.Sprintf("field %d", i)}, false)
	}
	if f := lane.fields()[0]; len(f.Names) != MaxIgnoredNames || !f.More {
		t.Errorf("%d names, more: %v", len(f.Names), f.More)
	}
	if f := (ignoredNames{}).fields(); f != nil {
		t.Errorf("%v without a name", f)
	}
}

// TestIgnoredLog has each name once per topic and hour in the log, and a hostile producer cannot fill it.
func TestIgnoredLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&log, nil))
		l := ignoredLog{}
		want := func(fields []IgnoredFields, want ...string) {
			t.Helper()
			l.tell(t.Context(), logger, fields)
			var got []string
			for _, line := range logLines(t, &log) {
				got = append(got, fmt.Sprint(line["topic"], " ", line["fields"], " ", line["more"]))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		of := func(topic string, names ...string) []IgnoredFields {
			return []IgnoredFields{{Topic: topic, Names: names}}
		}
		want(of("orders", "a", "b"), "orders [a b] false")
		want(of("orders", "a", "b"))
		want(of("orders", "a", "c"), "orders [c] false")
		want(of("refunds", "a"), "refunds [a] false")
		time.Sleep(time.Hour - 1)
		want(of("orders", "a"))
		time.Sleep(time.Nanosecond)
		want(of("orders", "a"), "orders [a] false")
		want(of("orders", "b"), "orders [b] false")

		time.Sleep(time.Hour)
		names, lines := 0, 0
		for commit := range 1000 {
			f := IgnoredFields{Topic: "orders", More: true}
			for i := range MaxIgnoredNames {
				f.Names = append(f.Names, fmt.Sprintf("field %d of commit %d", i, commit))
			}
			l.tell(t.Context(), logger, []IgnoredFields{f})
			for _, line := range logLines(t, &log) {
				said, _ := line["fields"].([]any)
				names, lines = names+len(said), lines+1
			}
		}
		if names != MaxIgnoredNames || lines != 1 {
			t.Errorf("%d lines with %d names in an hour", lines, names)
		}
	})
}
