package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice/internal/laketest"
)

// TestTableFolderDeleted deletes the folder of a table while a member runs. The member must report it, and commands
// must show one reason for each partition. After offsets start the member must continue without an error in the log.
func TestTableFolderDeleted(t *testing.T) {
	t.Parallel()
	l := newLakeOn(t, "topics: {orders: {}}", ", offset_commit_interval: 100ms", nil)
	l.Create("orders", 2)
	l.Produce("orders", 5, 0, 1)
	var log laketest.Log
	l.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := l.start()
	l.Awaits("orders", laketest.UpTo(5, "orders:0", "orders:1"))
	l.Await("the group has offsets", func() bool {
		of, err := l.Admin.FetchOffsets(t.Context(), "p")
		if err != nil {
			return false
		}
		_, zero := of.Lookup("orders", 0)
		_, one := of.Lookup("orders", 1)
		return zero && one
	})
	l.RemoveTable("orders")
	l.Produce("orders", 5, 0)
	l.Await("both partitions are held", func() bool { return len(heldIn(s)["orders table_replaced"]) == 2 })
	for _, h := range s.Report().Holds {
		if !strings.HasPrefix(h.Detail, "the folder has no Delta log: table ") {
			t.Errorf("%+v", h)
		}
	}

	// Members of a lake have no HTTP server, so this one responds with the holds of the member.
	holds := s.Report().Holds
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var all []string
		for _, h := range holds {
			all = append(all, fmt.Sprintf(`{"topic":%q,"partition":%d,"reason":%q,"detail":%q,"offset":%d}`, h.Topic, h.Partition, h.Reason, h.Detail, h.Offset))
		}
		_, _ = fmt.Fprintf(w, `{"pipeline":"p","holds":[%s]}`, strings.Join(all, ","))
	}))
	t.Cleanup(member.Close)
	alone := read(t, l.Config)
	if err := os.WriteFile(l.Config, []byte(strings.ReplaceAll(alone, "health: {enabled: false}", fmt.Sprintf("health: {listen: %q}", member.Listener.Addr()))), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := l.runs(1, "holds")
	if !regexp.MustCompile(`(?m)^orders:0 +table_replaced .*\norders:1 +table_replaced `).MatchString(out) || strings.Contains(out, "unknown_history") ||
		!strings.Contains(out, "command: connector offsets start orders --reason table_replaced") {
		t.Error(out)
	}
	out, _ = l.runs(1, "offsets", "show")
	if !regexp.MustCompile(`(?m)^orders:0 .* table_replaced$`).MatchString(out) || strings.Contains(out, "unknown_history") {
		t.Error(out)
	}
	out, _ = l.runs(1, "check")
	if !regexp.MustCompile(`(?m)^problem +hold +orders:1 +table_replaced: the folder has no Delta log`).MatchString(out) || strings.Contains(out, "unknown_history") {
		t.Error(out)
	}
	if err := os.WriteFile(l.Config, []byte(alone), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = l.runs(1, "holds") // without a member, the command cannot know that the table existed
	if !strings.Contains(out, "the table does not exist or is empty, so its folder was deleted, or another program has used the group") {
		t.Error(out)
	}

	l.runs(0, "offsets", "start", "orders", "--reason", "a test", "--yes")
	l.Awaits("orders", map[string][]int64{"orders:0": laketest.UpTo(10, "orders:0")["orders:0"], "orders:1": laketest.UpTo(5, "orders:1")["orders:1"]})
	l.Await("nothing is held", func() bool { return len(heldIn(s)) == 0 })
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "msg=HOLD") {
			t.Error(line)
		}
	}
	if !strings.Contains(log.String(), "table was replaced by another; reading its positions") {
		t.Error(log.String())
	}
}
