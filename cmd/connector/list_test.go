package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"sluice/health"
	"sluice/internal/admin"
	"sluice/reliability/hold"
	"sluice/sink/opslog"
)

// TestLists compares each list, as a table and wide, with testdata/lists.txt; -update writes the file.
func TestLists(t *testing.T) {
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	n := func(i int64) *int64 { return &i }
	holds := &admin.HoldReport{Member: true, Holds: []*admin.Hold{{
		Topic: "orders", Partition: 3, Reason: hold.BehindLogStart, Detail: "position 5 is below\nthe log start 9", Since: &noon, Offset: n(5),
		EndsBy: hold.BehindLogStart.EndsBy(), Command: "connector offsets accept-gap orders:3", From: []string{"host-1", "host-2"},
	}, {Partition: -1, Reason: hold.OperationsLog, Detail: "broken", EndsBy: hold.OperationsLog.EndsBy(), From: []string{"host-1"}}}}
	members := health.Members{
		Members: []health.Member{
			{ID: "host-1", Status: "RUNNING", Seconds: 3, Active: true, LastRecord: &noon, Lag: n(12), Address: "http://10.0.0.1:8080"},
			{ID: "host-2", Status: "RUNNING", Seconds: 240},
		},
		Findings: []health.MemberFinding{{ID: "host-2", Severity: health.LevelCritical, Finding: "no heartbeat for 4m"}},
		Reason:   "1 of 2 members active",
	}
	positions := []admin.Position{
		{Topic: "orders", Partition: 0, Position: n(7), Group: n(7), LogStart: n(0), End: n(9), Lag: n(2)},
		{Topic: "orders", Partition: 1, Position: n(5), LogStart: n(9), End: n(9), Hold: &admin.HoldInfo{Reason: hold.BehindLogStart, Detail: "deleted", EndsBy: hold.BehindLogStart.EndsBy()}},
		{Topic: "users", Partition: -1, Note: "the topic does not exist yet"},
	}
	letters := &admin.LetterList{
		Letters: 2, Distinct: 1, Unresolved: 1, Unknown: 1, Matching: 1, Listed: []admin.ListedLetter{{
			Topic: "orders", TopicID: "AAAAAAAAAAAAAAAAAAAAAA", Partition: 1, Offset: 42, State: admin.LetterUnknown, Why: "the topic was created again", Reason: "type_mismatch",
			Class: "record", Detail: "type_mismatch at byte 7 in column id:\nexpected bigint, found string", Retries: 3, Failed: &noon, Member: "host-1", Batch: "host-1-17", Copies: 2,
			Letter: admin.LetterPlace{Topic: "orders-dlq", Partition: 1, Offset: 6},
		}},
	}
	audit := &admin.AuditReport{Entries: []admin.RecordedEntry{{
		Entry: opslog.Entry{Seq: 1, ID: "0198-1", At: noon, Operator: "ann", Host: "host-1", Kind: "later", Reason: "a test", Body: []byte(`{}`)}, Hash: "ab34",
	}}, Head: &opslog.Head{Seq: 1, Hash: "ab34"}}
	windows := &admin.WindowReport{
		URL: "s3://lake/orders", Identity: "field:id", Bytes: 1 << 20, Limit: 64 << 20, Seconds: 0.5,
		Partitions: []admin.PartitionWindow{{Topic: "orders", Entries: 5, None: 1, From: &noon, Reset: 3}},
	}
	verified := &admin.Verification{URL: "s3://lake/orders", Version: 4, Rows: 8, Partitions: []admin.VerifiedPartition{{
		Topic: "orders", AppID: "sluice:p:orders:0", Ranges: []admin.Interval{{From: 0, Next: 4}, {From: 4, Next: 8}}, Position: n(8), Committed: 8, Rows: 8,
	}}}
	findings := []admin.Finding{
		{Status: admin.StatusOK, Area: "broker", Subject: "a:9092", Text: "cluster c"},
		{Status: admin.StatusFailed, Area: "broker", Subject: "b:9092", Text: "no answer", Hint: "look"},
	}
	replay := &admin.ReplayPlan{Tables: []string{"orders"}, Count: 3, Outcomes: []admin.ReplayOutcome{{Topic: "orders", Reason: "type_mismatch", Rows: 2, Fails: 1, Detail: "still text"}}}
	table := &admin.Inspection{
		URL: "s3://lake/orders", ID: "id", Version: 4, Checkpoint: -1, Reader: 1, Writer: 2, Files: 2, Bytes: 900, Rows: 8,
		Schema: "id bigint not null, item string", Columns: []string{"id bigint not null", "item string"}, Positions: []admin.TablePosition{},
	}
	var all strings.Builder
	for _, list := range []struct {
		command string
		print   func(wide bool) error
	}{
		{"audit list", func(wide bool) error { return printAudit(&all, wide, audit) }},
		{"check", func(wide bool) error { return printFindings(&all, wide, findings) }},
		{"deadletters list", func(wide bool) error { return printLetters(&all, wide, letters) }},
		{"deadletters replay", func(wide bool) error { return printReplayPlan(&all, wide, replay) }},
		{"fingerprints stats", func(wide bool) error { return printWindows(&all, wide, windows) }},
		{"holds", func(wide bool) error { return printHolds(&all, wide, holds) }},
		{"members", func(wide bool) error { return printMembers(&all, wide, members) }},
		{"offsets show", func(wide bool) error { return printOffsets(&all, wide, positions) }},
		{"table inspect", func(wide bool) error { return printInspection(&all, wide, table) }},
		{"verify", func(wide bool) error { return printVerification(&all, wide, verified, false) }},
	} {
		for _, form := range []string{outputTable, outputWide} {
			fmt.Fprintf(&all, "\n--- %s --output %s\n", list.command, form)
			if err := list.print(form == outputWide); err != nil {
				t.Fatal(err)
			}
		}
	}
	const golden = "testdata/lists.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(read(t, golden), all.String()); d != "" {
		t.Errorf("run with -update if this is meant (-want +got):\n%s", d)
	}
}

// listCommands returns the commands with --output wide.
func listCommands() (names []string) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if f := cmd.Flags().Lookup("output"); f != nil && strings.Contains(f.Usage, outputWide) {
			names = append(names, strings.TrimPrefix(cmd.CommandPath(), "connector "))
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&cli{}).root())
	slices.Sort(names)
	return names
}

// TestDocsCommands_Lists: docs/commands.md names the commands whose lists can be wide.
func TestDocsCommands_Lists(t *testing.T) {
	want := "These commands print lists, and have `--output wide`: `" + strings.Join(listCommands(), "`, `") + "`."
	if !strings.Contains(read(t, "../../docs/commands.md"), want) {
		t.Errorf("docs/commands.md does not have the line:\n%s", want)
	}
}

// TestOutputWide: a wide list of a real table and topic has the columns that the table leaves out, and JSON has neither.
func TestOutputWide(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	for _, c := range []struct {
		args, table, wide string
	}{
		{"offsets show", "HOLD\n", "NOTE\n"},
		{"verify", "ROWS\n", "TXN\n"},
		{"table inspect", "\nschema ", "\ncolumn "},
		{"check", "configuration", "TO DO"},
	} {
		args := strings.Fields(c.args)
		table, _ := l.runs(0, args...)
		wide, _ := l.runs(0, append(args, "-o", "wide")...)
		json, _ := l.runs(0, append(args, "-o", "json")...)
		if !strings.Contains(table, c.table) || !strings.Contains(wide, c.wide) || strings.Contains(table, c.wide) || !strings.HasPrefix(json, "{") && !strings.HasPrefix(json, "[") {
			t.Errorf("%s:\n%s\n%s\n%s", c.args, table, wide, json)
		}
	}
}
