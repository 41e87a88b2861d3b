package intake

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/connector/connectortest"
)

// TestState_Transitions tries every pair of states. A transition that the table in docs/architecture.md has logs
// nothing; any other is logged as an error.
func TestState_Transitions(t *testing.T) {
	documented := transitionsIn(t, filepath.Join("..", "..", "docs", "architecture.md"))
	if len(documented) != len(states()) {
		t.Errorf("%d states are documented, there are %d", len(documented), len(states()))
	}
	for _, from := range states() {
		for _, to := range states() {
			var log bytes.Buffer
			r := readerOf(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			c := &claim{Partition: connectortest.Partition(0), claimState: claimState{state: from}}
			r.holds.enter(c, to)
			legal, said := slices.Contains(documented[from.String()], to.String()), log.Len() > 0
			if legal == said || c.state != to {
				t.Errorf("%v to %v: documented %v, logged %v, now %v", from, to, legal, said, c.state)
			}
			if want := fmt.Sprintf("from=%v to=%v", from, to); said && !strings.Contains(log.String(), want) {
				t.Errorf("the line does not say %q: %s", want, log.String())
			}
		}
	}
}

// transitionsIn reads the table of states in the document at path: for each state, the states that may follow it.
func transitionsIn(t *testing.T, path string) map[string][]string {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(body), "| state | next |")
	if !found {
		t.Fatal("the document has no table of states")
	}
	all := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.Contains(line, "---") {
			if len(all) > 0 {
				break
			}
			continue
		}
		name := strings.Trim(cells[1], " `")
		all[name] = []string{}
		for next := range strings.SplitSeq(cells[2], ",") {
			if next = strings.Trim(next, " `"); next != "" && next != "none" {
				all[name] = append(all[name], next)
			}
		}
	}
	return all
}

// TestState_Groups: each state is in exactly one of the groups reads, awaitsPosition, isStopped, leaving and lost, and
// is shown as resuming, reading or held.
func TestState_Groups(t *testing.T) {
	for _, s := range states() {
		groups := 0
		for _, in := range []bool{s.reads(), s.awaitsPosition(), s.isStopped(), s == leaving, s == lost} {
			if in {
				groups++
			}
		}
		if groups != 1 {
			t.Errorf("%v is in %d groups, want one of reads, asked, stands, leaving, lost", s, groups)
		}
		if !slices.Contains([]string{"resuming", "reading", "held"}, s.display()) {
			t.Errorf("%v is shown as %q", s, s.display())
		}
	}
}
