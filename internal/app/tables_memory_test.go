package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"sluice/internal/laketest"
)

// TestTables_MoreThanRoom: when a member opens the first table for which memory.limit has no room, it logs a warning,
// even if the table's topic begins to match a pattern only later. For further tables it does not repeat the warning.
func TestTables_MoreThanRoom(t *testing.T) {
	l := newLake(t, `topics: {all: {pattern: "t.*", deny: []}}`)
	cfg := laketest.Load(t, l.Config)
	cfg.Budget.Limit = 1 // room for one table
	var log bytes.Buffer
	s, err := New(t.Context(), cfg, Options{}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, topic := range []string{"ta", "ta", "tb", "tb", "tc"} {
		conf, meant, err := cfg.Route(topic)
		if err == nil && meant {
			_, err = s.open(conf)
		}
		if err != nil || !meant {
			t.Fatal(topic, meant, err)
		}
		said := strings.Count(log.String(), `level=WARN msg="more tables are open than memory.limit has room for" tables=2 room=1`)
		if want := min(i/2, 1); said != want {
			t.Errorf("%s: said %d times, want %d:\n%s", topic, said, want, &log)
		}
	}
}
