package lane

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/connectortest"
)

func TestRecordLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := NewRecordLog(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		if !l.enabled(t.Context()) {
			t.Fatal("not enabled at DEBUG")
		}
		p := connector.Partition{Topic: "orders", ID: 3}
		r := &connector.Record{Offset: 7, Key: []byte("order 1"), Value: []byte("the value"), Headers: []connector.Header{{Key: "name", Value: []byte("x")}}}
		l.log(t.Context(), p, r, recordIsRow)
		l.log(t.Context(), p, &connector.Record{Offset: 8}, recordIsTombstone)
		lines := connectortest.LogLines(t, &log)
		if len(lines) != 2 {
			t.Fatalf("%d lines", len(lines))
		}
		for _, line := range lines {
			delete(line, "time")
		}
		// printf 'order 1' | sha256sum | cut -c-16
		want := []map[string]any{
			{
				"level": "DEBUG", "msg": "record", "topic": "orders", "partition": 3.0, "offset": 7.0, "became": "row", "key_bytes": 7.0,
				"value_bytes": 9.0, "headers": 1.0, "key_sha256": "f3d6f0d55b053fde", "left_out": 0.0,
			},
			{
				"level": "DEBUG", "msg": "record", "topic": "orders", "partition": 3.0, "offset": 8.0, "became": "tombstone", "key_bytes": 0.0,
				"value_bytes": 0.0, "headers": 0.0, "key_sha256": "", "left_out": 0.0,
			},
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Error(diff)
		}

		time.Sleep(time.Second)
		for range 5 * recordsPerSecond {
			l.log(t.Context(), p, r, recordIsRow)
		}
		if n := len(connectortest.LogLines(t, &log)); n != recordsPerSecond {
			t.Errorf("%d lines in a second, want %d", n, recordsPerSecond)
		}
		time.Sleep(time.Second)
		l.log(t.Context(), p, r, recordIsRow)
		if lines := connectortest.LogLines(t, &log); len(lines) != 1 || lines[0]["left_out"] != 4.0*recordsPerSecond {
			t.Errorf("%v, want one line that says how many were left out", lines)
		}
	})
}

func TestRecordLog_OffAboveDebug(t *testing.T) {
	if NewRecordLog(slog.New(slog.NewJSONHandler(&bytes.Buffer{}, nil))).enabled(t.Context()) {
		t.Error("enabled at INFO: lanes would write a line for each record")
	}
}
