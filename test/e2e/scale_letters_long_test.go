//go:build lab && long && linux

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/test/gen"
	"sluice/test/lab"
)

// scaleLetters is the number of dead letters in TestScaleLetters.
const scaleLetters = 1_000_000

// TestScaleLetters makes dead letters of a million bad records, of every kind in [gen.Poisons] that is not large. The
// subcommands of `connector deadletters` must list, count, export, discard and replay exactly the right ones, within
// memory.limit and 15 % more. A running member must count the dead letters that are still unresolved. E2E_SCALE_LETTERS
// names a file that receives the figures.
func TestScaleLetters(t *testing.T) {
	s := &letterScale{scene: newScene(t, 8).strict()}
	s.figures.WriteString("| 1 000 000 dead letters | seconds | CPU, s | peak RSS, MiB |\n|---|---|---|---|\n")
	without := func(c *settings) {
		c.memory, c.commit, c.bad = limited, "{every: 5s}", "dead_letter\n  dead_letters: {hold_above: 100%, archive: none}"
	}
	strict := func(c *settings) { without(c); c.bad += strictly(gen.Policy{Strict: true}) }
	m := s.start(strict)
	p := s.producer(scaleLetters, "lz4")
	p.Orders.Bad = 1000
	if err := p.Run(s.ctx, s.ledger); err != nil {
		t.Fatal(err)
	}
	s.awaitPassed()
	reasons := map[string]int{}
	for _, line := range s.lines(s.badLedger) {
		code, _, _ := strings.Cut(line, " ")
		reasons[code]++
	}
	t.Logf("%v", reasons)
	if n := s.badLedger.Len(); n != scaleLetters || reasons[gen.UnknownField] < 20_000 {
		t.Fatalf("%d bad records, %v", n, reasons)
	}
	t.Logf("a member counts them after %v", m.countsLetters(scaleLetters))

	s.lists("list", reasons, without)
	s.lists("list --state all --code type_mismatch", map[string]int{"type_mismatch": reasons["type_mismatch"]}, without)
	s.rehearses(reasons, without)
	s.exports(without)

	s.decides("discard --topic "+s.name+" --code syntax", without)
	t.Logf("a member counts after %v", m.countsLetters(scaleLetters-reasons["syntax"]))
	s.lists("list --state discarded", map[string]int{"syntax": reasons["syntax"]}, without)
	s.decides("replay-all "+s.name+" --rate 0 --code "+gen.UnknownField, without)
	t.Logf("a member counts after %v", m.countsLetters(scaleLetters-reasons["syntax"]-reasons[gen.UnknownField]))
	s.lists("list --state replayed", map[string]int{gen.UnknownField: reasons[gen.UnknownField]}, without)
	m.drain()
	s.wants(0, "audit", "verify")

	t.Logf("memory.limit %s\n%s", limited, &s.figures)
	if path := os.Getenv("E2E_SCALE_LETTERS"); path != "" {
		if err := os.WriteFile(path, []byte(s.figures.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// letterScale is a scene with very many dead letters.
type letterScale struct {
	*scene
	figures strings.Builder
}

// measures runs a command about dead letters, expects that it succeeds within mostResident, and returns
// the path of its output.
func (s *letterScale) measures(command string, change setting, args ...string) (path string) {
	s.t.Helper()
	config, _ := s.config(change)
	path = filepath.Join(s.dir, fmt.Sprintf("command-%d.log", s.members))
	args = append(append([]string{shared.binary, "deadletters"}, strings.Fields(command)...), append(args, "--config", config)...)
	began := time.Now()
	p, err := lab.StartProcess(command, path, environment(), args...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = p.Kill() })
	peak, _ := s.watch(s.ctx, p, 4*patience)
	took := time.Since(began)
	if got := p.ExitCode(); got != 0 {
		s.t.Fatalf("%s: exit code %d: %s", command, got, p.Tail())
	}
	if peak > mostResident && bounded() {
		s.t.Errorf("%s: %d MiB resident, the limit and 15 %% are %d", command, peak>>20, mostResident>>20)
	}
	user, system := p.Usage()
	_, _ = fmt.Fprintf(&s.figures, "| %s | %.1f | %.1f | %d |\n", strings.ReplaceAll(strings.ReplaceAll(command, " "+s.name, ""), " --topic", ""), took.Seconds(), (user + system).Seconds(), peak>>20)
	return path
}

// result runs a command and decodes the JSON that it prints.
func (s *letterScale) result(to any, command string, change setting) {
	s.t.Helper()
	text, err := os.ReadFile(s.measures(command, change, "--output", "json"))
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(text[max(0, bytes.Index(text, []byte("{\n"))):])).Decode(to) // between warnings and notes
	}
	if err != nil {
		s.t.Fatalf("%s: %v: %s", command, err, tail(text))
	}
}

// lists runs a list command. It must count as many dead letters of each reason as reasons says, and print 100 of them,
// the default limit.
func (s *letterScale) lists(command string, reasons map[string]int, change setting) {
	s.t.Helper()
	var list struct {
		Distinct, Matching int
		Reasons            []struct {
			Reason string
			Count  int
		}
		Listed []struct {
			Reason, Detail string
			Copies         int
		}
	}
	s.result(&list, command, change)
	counted, all := map[string]int{}, 0
	for _, r := range list.Reasons {
		counted[r.Reason] = r.Count
		all += r.Count
	}
	if d := cmp.Diff(reasons, counted); d != "" || all != list.Matching || len(list.Listed) != 100 {
		s.t.Errorf("%s: %d match, %d are listed (-want +got):\n%s", command, list.Matching, len(list.Listed), d)
	}
	for _, l := range list.Listed {
		if reasons[l.Reason] == 0 || l.Detail == "" || l.Copies < 1 {
			s.t.Errorf("%s: %+v", command, l)
		}
	}
}

// rehearses runs a dry run of a replay of all dead letters. It must predict a row for each record with unknown fields,
// and another failure for every other record.
func (s *letterScale) rehearses(reasons map[string]int, change setting) {
	s.t.Helper()
	var plan struct {
		Count    int
		Outcomes []struct {
			Reason string
			Rows   int
			Fails  int `json:"fail_again"`
		}
	}
	s.result(&plan, "replay-all "+s.name+" --dry-run", change)
	rows, fails := map[string]int{}, map[string]int{}
	for _, o := range plan.Outcomes {
		if o.Rows > 0 {
			rows[o.Reason] = o.Rows
		}
		fails[o.Reason] = o.Fails + o.Rows
	}
	if d := cmp.Diff(reasons, fails) + cmp.Diff(map[string]int{gen.UnknownField: reasons[gen.UnknownField]}, rows); d != "" || plan.Count != scaleLetters {
		s.t.Errorf("%d dead letters (-want +got):\n%s", plan.Count, d)
	}
}

// exports expects an export to have each bad record once, with its reason.
func (s *letterScale) exports(change setting) {
	s.t.Helper()
	bad := s.lines(s.badLedger)
	path := s.measures("export", change, s.name)
	file, err := os.Open(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = file.Close(); _ = os.Remove(path) }() // it is large
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l struct {
			Partition string `json:"original_partition"`
			Offset    int64  `json:"original_offset"`
			Reason    string
		}
		if !bytes.HasPrefix(lines.Bytes(), []byte(`{"original_topic"`)) {
			continue // a warning
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			s.t.Fatal(err)
		}
		id, err := strconv.ParseInt(l.Partition, 10, 32)
		if err != nil {
			s.t.Fatal(err)
		}
		at := gen.Coordinates{Topic: s.name, Partition: int32(id), Offset: l.Offset}
		if !strings.HasPrefix(bad[at], l.Reason+" ") {
			s.t.Fatalf("%v: reason %s, the record is %q", at, l.Reason, bad[at])
		}
		delete(bad, at)
	}
	if err := lines.Err(); err != nil || len(bad) > 0 {
		s.t.Errorf("%v: %d bad records are not exported", err, len(bad))
	}
}

// decides runs a subcommand of `connector deadletters` that changes dead letters, with the flags that such commands
// need.
func (s *letterScale) decides(command string, change setting) {
	s.t.Helper()
	s.measures(command, change, "--operator", "e2e", "--reason", "a test", "--yes", "--output", "json")
}
