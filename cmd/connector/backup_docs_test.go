package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestDocsBackup follows docs/backup.md in a folder with a table, a paused topic and dead letters. Between the copy and the
// restore, the table gets more commits and then loses a version, and the operations log loses an entry.
func TestDocsBackup(t *testing.T) {
	l := newLake(t, `defaults: {schema: "n int", commit: {every: 100ms}}
topics: {sales: {}}`)
	l.Create("sales", 1)
	produce := func(values ...string) {
		t.Helper()
		for _, v := range values {
			if err := l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "sales", Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	page := read(t, "../../docs/backup.md")
	t.Chdir(l.Dir)
	produce(`{"n":1}`, `{"n":"bad"}`, `{"n":2}`)
	l.runs(exitOK, "run", "--until-current")
	l.runs(exitOK, "pause", "sales", "--reason", "test", "--yes")
	l.runs(exitOK, "resume", "sales", "--reason", "test", "--yes")

	copying, rest, _ := strings.Cut(page, "\n## Restore a table\n")
	table, log, found := strings.Cut(rest, "\n## Restore the operations log\n")
	if !found {
		t.Fatal("the page has other sections")
	}
	ran := consoles(t, l, copying)
	produce(`{"n":3}`, `{"n":4}`)
	l.runs(exitOK, "run", "--until-current")
	if err := os.Remove(filepath.Join("lake", "sales", "_delta_log", "00000000000000000001.json")); err != nil {
		t.Fatal(err)
	}
	ran += consoles(t, l, table)
	l.Has("sales", map[string][]int64{"sales:0": {0, 2, 3, 4}})
	if err := os.Remove(filepath.Join("lake", "_sluice", "p", "ops", "00000000000000000001.json")); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := connectorRun(t, "audit", "verify"); code == exitOK {
		t.Errorf("a lost entry is not found: %s", out)
	}
	ran += consoles(t, l, log)
	if ran < 12 {
		t.Errorf("only %d commands ran", ran)
	}
}

// shells are the programs of a page that a test may execute.
var shells = regexp.MustCompile(`^(mkdir|cp|mv|tar) `)

// consoles executes the commands of the blocks marked console in the current folder and compares what they print with what the
// page shows. It returns their number.
func consoles(t *testing.T, l *lake, page string) (ran int) {
	t.Helper()
	for _, b := range blocks(page) {
		if b.lang != "console" {
			continue
		}
		for _, part := range strings.Split("\n"+b.text, "\n$ ")[1:] {
			command, shown, _ := strings.Cut(part, "\n")
			ran++
			var printed string
			switch words := words.FindAllString(command, -1); {
			case words[0] == "connector":
				code, out, errs := connectorRun(t, withoutQuotes(words[1:])...)
				if code != exitOK {
					t.Errorf("$ %s: exit code %d\n%s%s", command, code, out, errs)
				}
				printed = out
			case shells.MatchString(command):
				out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
				if err != nil {
					t.Errorf("$ %s: %v\n%s", command, err, out)
				}
				printed = string(out)
			default:
				t.Errorf("no test executes %q", command)
			}
			if !asOnPage(shown, printed) {
				t.Errorf("$ %s\nprints:\n%s\nthe page shows:\n%s", command, printed, shown)
			}
		}
	}
	return ran
}

// withoutQuotes returns words of a command line without their quotes.
func withoutQuotes(words []string) (all []string) {
	for _, w := range words {
		all = append(all, strings.Trim(w, `"'`))
	}
	return all
}
