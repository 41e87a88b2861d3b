package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"sluice/reliability/hold"
)

// A runbook is the section of a page about one alert or hold.
type runbook struct{ text, look, act string }

// runbooks returns the sections of a page that tell what to look at and what to type, by their titles.
func runbooks(page string) map[string]runbook {
	const look, act = "\n- **Look at** ", "\n- **Type** "
	found := map[string]runbook{}
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split("\n"+page, -1) {
		title, text, _ := strings.Cut(section, "\n")
		_, rest, looks := strings.Cut(text, look)
		r := runbook{text: text}
		var acts bool
		if r.look, r.act, acts = strings.Cut(rest, act); looks && acts {
			r.act, _, _ = strings.Cut(r.act, "\n\n")
			found[title] = r
		}
	}
	return found
}

var fenced = regexp.MustCompile("(?ms)^```.*?^```$")

// spans returns the code spans of a text outside of its fenced blocks, also those that continue in the next line.
func spans(text string) (all []string) {
	for _, m := range ticked.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.Join(strings.Fields(m[1]), " "))
	}
	return all
}

// somethingToType is what a code span begins with if a person can type it.
var somethingToType = regexp.MustCompile(`^(connector|kafka-[a-z]+\.sh|curl) `)

// checkRunbook checks that a section says what to look at and what to type: queries that fit our metrics and lines of the
// log, and commands, with a reason if they need one. Where nothing is to be typed, it must say so.
func checkRunbook(t *testing.T, title string, r runbook, q *queries) {
	t.Helper()
	looks, acts := 0, 0
	for _, span := range spans(r.look) {
		if q.check(t, title, span) || somethingToType.MatchString(span) {
			looks++
		}
	}
	for _, span := range spans(r.act) {
		if somethingToType.MatchString(span) {
			acts++
		}
		if strings.HasPrefix(span, "connector ") && wantsReason(t, span) && !strings.Contains(span, " --reason ") {
			t.Errorf("%s: %s needs a --reason", title, span)
		}
	}
	if looks == 0 {
		t.Errorf("%s: no query and no command after Look at: %q", title, r.look)
	}
	if acts == 0 && !strings.HasPrefix(r.act, "nothing") {
		t.Errorf("%s: no command after Type: %q", title, r.act)
	}
}

// wantsReason reports whether a command line refuses to run without --reason.
func wantsReason(t *testing.T, line string) bool {
	t.Helper()
	root := (&cli{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}).root()
	cmd, _, err := root.Find(words.FindAllString(line, -1)[1:])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(cmd.Use, "--reason TEXT") && !strings.Contains(line, " --dry-run")
}

// TestRunbooks_Holds expects a section for each hold reason in docs/operations.md, with what to look at and what to type. If
// a command ends the hold, that command is to be typed, as `connector holds` prints it.
func TestRunbooks_Holds(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, "../../docs/operations.md"), "\n## Holds\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found, q := runbooks(section), newQueries(t)
	for _, reason := range hold.Reasons() {
		r, ok := found[string(reason)]
		if !ok {
			t.Errorf("docs/operations.md has no section %s with Look at and Type", reason)
			continue
		}
		delete(found, string(reason))
		checkRunbook(t, string(reason), r, q)
		offset := int64(-1)
		if strings.Contains(r.act, "@") {
			offset = 1207
		}
		partition := int32(3)
		if command := reason.Command("orders", partition, offset); command != "" && !slices.Contains(spans(r.act), command) {
			t.Errorf("%s: its command is %q, to type is %q", reason, command, r.act)
		}
		if strings.HasPrefix(reason.EndsBy(), "by itself") && !strings.HasPrefix(r.act, "nothing") && !strings.Contains(r.act, "or wait") {
			t.Errorf("%s ends by itself, to type is %q", reason, r.act)
		}
	}
	for title := range found {
		t.Errorf("docs/operations.md has a section for %s, which is no reason", title)
	}
}

// parsed parses a command line of the docs with the commands of the connector, without running it.
func parsed(line string) error {
	root := (&cli{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}).root()
	root.InitDefaultHelpCmd()
	cmd, args, err := root.Find(words.FindAllString(line, -1)[1:])
	if err != nil {
		return err
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		return nil // "connector deadletters" names a group of commands
	}
	if err := cmd.ParseFlags(args); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if cmd.Flags().NArg() == 0 { // a text may name a command without its arguments
		return nil
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// TestCommandLinesInDocs expects each command line of the connector that a page names to parse: the command, its flags and
// its arguments. Other tests execute them.
func TestCommandLinesInDocs(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	placeholder := regexp.MustCompile(` (\[[^\]]*\]|COMMAND)`)
	n := 0
	for _, page := range append(pages, "README.md", "SECURITY.md", "CONTRIBUTING.md", "deploy/README.md") {
		for _, span := range spans(read(t, page)) {
			if !strings.HasPrefix(span, "connector ") {
				continue
			}
			n++
			if err := parsed(placeholder.ReplaceAllString(span, "")); err != nil {
				t.Errorf("%s: %s: %v", page, span, err)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d command lines found", n)
	}
	for _, wrong := range []string{"connector hold", "connector holds --all", "connector deadletters show orders:3@1207 orders:4@1"} {
		if parsed(wrong) == nil {
			t.Errorf("%s parses", wrong)
		}
	}
}

// queries checks the queries of the docs: those in PromQL against the metrics of the connector and the rules, those in
// LogQL against the lines of the log and their keys.
type queries struct {
	metrics known
	lines   map[string][]spoken
	keys    map[string]bool
	main    string // what main writes without a logger
}

func newQueries(t *testing.T) *queries {
	t.Helper()
	var rules ruleFile
	strictYAML(t, alertsFile, &rules)
	q := &queries{knownMetrics(t, rules), spokenLines(t), map[string]bool{"msg": true}, read(t, "main.go")}
	for row := range strings.Lines(read(t, "../../docs/operations.md")) { // TestLogTable compares that page with the sources
		if cells := strings.Split(row, "|"); strings.HasPrefix(row, "| `") && len(cells) == 6 {
			for _, key := range codes(cells[3]) {
				q.keys[key] = true
			}
		}
	}
	return q
}

var (
	ourMetric = regexp.MustCompile(`\b(sluice|kafka_consumer|worker|process)_[a-z_]+|^up$`)
	inLog     = regexp.MustCompile(`\|= "([^"]+)"`)
	keyInLog  = regexp.MustCompile(`{{\.([a-z_]+)}}|by \(([a-z_]+)\) \(count_over_time|json \| ([a-z_]+) =`)
)

// check checks a code span if it is a query, and reports whether it is one.
func (q *queries) check(t *testing.T, where, span string) bool {
	t.Helper()
	switch span = strings.ReplaceAll(span, `\|`, "|"); {
	case strings.Contains(span, `{app="connector"}`):
		for _, m := range inLog.FindAllStringSubmatch(span, -1) {
			said := m[1] == "internal error" && strings.Contains(q.main, m[1])
			for msg := range q.lines {
				said = said || strings.Contains(msg, m[1])
			}
			if !said {
				t.Errorf("%s: no line of the log has %q", where, m[1])
			}
		}
		for _, m := range keyInLog.FindAllStringSubmatch(span, -1) {
			if key := m[1] + m[2] + m[3]; !q.keys[key] {
				t.Errorf("%s: no line of the log has the key %s", where, key)
			}
		}
		return true
	case ourMetric.MatchString(span) && (strings.ContainsAny(span, "({=> ") || ourMetric.FindString(span) == span):
		q.metrics.check(t, where, span)
		return true
	default:
		return false
	}
}
