package commit

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/connectortest"
)

// TestIgnoredLog: the name of an ignored field is logged once per topic and hour, and at most MaxIgnoredNames names are
// logged.
func TestIgnoredLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&log, nil))
		l := ignoredLog{}
		want := func(fields []connector.IgnoredFields, want ...string) {
			t.Helper()
			l.log(t.Context(), logger, fields)
			var got []string
			for _, line := range connectortest.LogLines(t, &log) {
				got = append(got, fmt.Sprint(line["topic"], " ", line["fields"], " ", line["more"]))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		of := func(topic string, names ...string) []connector.IgnoredFields {
			return []connector.IgnoredFields{{Topic: topic, Names: names}}
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
			f := connector.IgnoredFields{Topic: "orders", More: true}
			for i := range connector.MaxIgnoredNames {
				f.Names = append(f.Names, fmt.Sprintf("field %d of commit %d", i, commit))
			}
			l.log(t.Context(), logger, []connector.IgnoredFields{f})
			for _, line := range connectortest.LogLines(t, &log) {
				attrs, _ := line["fields"].([]any)
				names, lines = names+len(attrs), lines+1
			}
		}
		if names != connector.MaxIgnoredNames || lines != 1 {
			t.Errorf("%d lines with %d names in an hour", lines, names)
		}
	})
}
