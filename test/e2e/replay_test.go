//go:build lab

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/sink/opslog"
	"sluice/test/gen"
	"sluice/test/lab"
)

const (
	// replayed is the number of dead letters in TestReplay_Killed. A replay without a rate commits 5000 at a time, so a
	// killed replay does not reach the last of them.
	replayed = 20_000
	// liveRate is the number of new records per second that are produced while a test replays dead letters or connects
	// slow clients.
	liveRate = 200
	// calmScrapes is how many times a test reads the freshness metric before it disturbs the members, and again
	// afterwards.
	calmScrapes = 60
)

// withoutFlood is a setting that makes bad records dead letters, even if all records of a topic are bad. A record with
// unknown fields is not bad.
func withoutFlood(c *settings) { c.bad = "dead_letter\n  dead_letters: {hold_above: 100%}" }

// refusing is a setting like withoutFlood, except that a record with unknown fields is bad and becomes a dead letter.
func refusing(c *settings) {
	withoutFlood(c)
	c.bad += strictly(gen.Policy{Strict: true})
}

// correctable returns a producer of n records whose only fault is an unknown field. It adds the rows that they become
// under withoutFlood to the ledger.
func (s *scene) correctable(n int64) gen.Producer {
	p := s.producer(n, "lz4")
	p.Orders.Bad, p.Orders.Only, p.Corrected = 1000, gen.UnknownField, s.ledger
	return p
}

// strict makes the scene produce records for a configuration that refuses unknown fields, and returns the scene.
func (s *scene) strict() *scene {
	s.badLedger = s.newLedger("bad.csv")
	s.orders.Policy = gen.Policy{Strict: true}
	return s
}

// replay is a replay of dead letters that runs as a process.
type replay struct {
	*lab.Process
	s *scene
}

// replays starts `connector deadletters replay-all` of the scene's topic.
func (s *scene) replays(args []string, change ...setting) *replay {
	s.t.Helper()
	path, _ := s.config(change...)
	argv := append([]string{shared.binary}, s.letterCommand("replay-all", append([]string{s.name}, args...)...)...)
	name := fmt.Sprintf("replay %d", s.members)
	p, err := lab.StartProcess(name, filepath.Join(s.dir, fmt.Sprintf("replay-%d.log", s.members)), environment(), append(argv, "--config", path)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = p.Kill() })
	return &replay{p, s}
}

// letterCommand returns the arguments of a command that changes dead letters.
func (s *scene) letterCommand(command string, args ...string) []string {
	return slices.Concat([]string{"deadletters", command}, args, []string{"--operator", "e2e", "--reason", "unknown fields are ignored now", "--yes", "--output", "json"})
}

// replayResult is the part of a replay's result that the tests read.
type replayResult struct {
	Rows    int64
	Failed  map[string]int
	LeftOut map[string]int `json:"left_out"`
	Commits []struct{ Version, Rows int64 }
}

// ended waits for the end of a replay, expects its exit code, and returns its result. The result is zero if the replay
// found no dead letters.
func (r *replay) ended(code int) (result replayResult) {
	r.s.t.Helper()
	r.s.await(r.Name+" has ended", func() (bool, error) { return !r.Running(), nil })
	text := r.Tail()
	if got := r.ExitCode(); got != code {
		r.s.t.Fatalf("%s: exit code %d, want %d: %s", r.Name, got, code, text)
	}
	if strings.Contains(text, "nothing to do") {
		return result
	}
	if err := json.Unmarshal([]byte(text[strings.LastIndex("\n"+text, "\n{\n"):]), &result); err != nil {
		r.s.t.Fatalf("%s: %v: %s", r.Name, err, text)
	}
	return result
}

// killedAtPut starts a replay and kills it while the proxy holds the n-th of its PUTs for which match returns true. It
// returns the fault that holds this PUT.
func (s *scene) killedAtPut(n int, match lab.Match, args []string, change ...setting) *lab.Fault {
	s.t.Helper()
	proxy, seen := s.proxy(), 0
	fault := proxy.Break(func(r *http.Request) bool {
		if match(r) {
			seen++
			return seen == n
		}
		return false
	}, 1, lab.Hold)
	p := s.replays(args, append(change, through(proxy))...)
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	path, err := fault.Wait(ctx)
	if err != nil {
		s.t.Fatalf("%s: %v: %s", p.Name, err, p.Tail())
	}
	if err := p.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("killed %s at PUT %d, %s", p.Name, n, path)
	return fault
}

// replayPut reports whether a request is a PUT of a replay: to the table, or to the operations log. It returns false
// for the PUTs by which a process tests the store when it starts.
func (s *scene) replayPut(r *http.Request) bool {
	return r.Method == http.MethodPut && (strings.Contains(r.URL.Path, "/"+s.log.Table+"/") || strings.Contains(r.URL.Path, "/ops/"))
}

// replayRows returns the number of rows that replays have added to the table, and the number of versions that added
// them.
func (s *scene) replayRows() (rows int64, versions int) {
	s.t.Helper()
	for _, c := range s.commits() {
		if n := c.Rows(); c.Info.Operation == "SLUICE REPLAY" && n > 0 {
			rows += n
			versions++
		}
	}
	return rows, versions
}

// intents returns the number of replays in the operations log for each outcome. The key "" counts the replays without a
// recorded outcome.
func (s *scene) intents() map[string]int {
	s.t.Helper()
	path, _ := s.config()
	code, text := s.command("audit", "list", "--output", "json", "--config", path)
	var log struct{ Entries []opslog.Entry }
	if err := json.Unmarshal([]byte(text[max(0, strings.Index(text, "{\n")):]), &log); err != nil || code != 0 {
		s.t.Fatalf("exit code %d: %v: %s", code, err, tail([]byte(text)))
	}
	outcomes := map[int64]string{}
	for _, e := range log.Entries {
		body, err := e.Decode()
		if err != nil {
			s.t.Fatal(err)
		}
		switch body := body.(type) {
		case opslog.ReplayIntent:
			outcomes[e.Seq] = ""
		case opslog.ReplayDone:
			if before, known := outcomes[body.Intent]; !known || before != "" {
				s.t.Errorf("intent %d has the outcomes %q and %q", body.Intent, before, body.Outcome)
			}
			outcomes[body.Intent] = string(body.Outcome)
		}
	}
	count := map[string]int{}
	for _, outcome := range outcomes {
		count[outcome]++
	}
	return count
}

// TestReplay_Killed replays dead letters while new records arrive, and kills three replays at random moments. Two
// further replays run at the same time until no dead letter is left. Each record must have exactly one row.
func TestReplay_Killed(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4).strict()
	refuses := s.start(refusing)
	var producers errgroup.Group
	for _, p := range []gen.Producer{s.correctable(replayed), s.producer(replayed, "zstd")} {
		producers.Go(func() error { return p.Run(s.ctx, s.ledger) })
	}
	if err := producers.Wait(); err != nil {
		t.Fatal(err)
	}
	s.awaitPassed()
	refuses.drain()

	members := []*member{s.start(withoutFlood), s.start(withoutFlood)}
	live := s.producer(1<<40, "zstd")
	live.PerSecond, live.Live = liveRate, true
	end := s.runs(live)
	for _, m := range members {
		m.await("it has partitions", func(r report) bool { return r.Ready && len(r.Partitions) > 0 })
	}
	watch := s.watchFreshness(members...)
	watch.read(calmScrapes)

	watch.phase("replaying")
	all := []string{"--rate", "0"}
	proxy := s.proxy()
	proxy.Slow(lab.DataPut, 500*time.Millisecond) // PUTs are slow, so the kill comes before the next commit
	first := s.replays(all, withoutFlood, through(proxy))
	s.await("a replay has committed rows", func() (bool, error) {
		rows, _ := s.replayRows()
		return rows > 0 || !first.Running(), nil
	})
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	rows, _ := s.replayRows()
	t.Logf("killed %s after %d rows", first.Name, rows)
	var late []*lab.Fault
	for range 2 {
		fault := s.killedAtPut(1+s.random.IntN(4), s.replayPut, all, withoutFlood)
		switch s.random.IntN(3) {
		case 0:
			fault.Release(false)
		case 1:
			fault.Release(true)
		default:
			late = append(late, fault)
		}
		rows, versions := s.replayRows()
		t.Logf("%d rows in %d commits of replays; %d PUTs come later", rows, versions, len(late))
	}
	before, versions := s.replayRows()
	if before >= replayed {
		t.Fatalf("the killed replays have added all %d rows", before)
	}
	both := []*replay{s.replays(all, withoutFlood), s.replays(all, withoutFlood)}
	s.await("one of them has committed rows", func() (bool, error) {
		_, n := s.replayRows()
		return n > versions || !both[0].Running() && !both[1].Running(), nil
	})
	for _, fault := range late {
		fault.Release(true)
	}
	for _, r := range both {
		result := r.ended(0)
		t.Logf("%s: %d rows in %d commits, left out %v", r.Name, result.Rows, len(result.Commits), result.LeftOut)
	}
	if out := s.replays(all, withoutFlood); out.ended(0).Rows != 0 || !strings.Contains(out.Tail(), "nothing to do") {
		t.Errorf("there are dead letters left: %s", out.Tail())
	}
	watch.phase("")
	watch.read(calmScrapes)
	watch.end()
	end()
	s.awaitPassed()
	for _, m := range members {
		m.drain()
	}
	s.untilCurrent(withoutFlood)

	// A replay adds its rows after those of newer records, so their order is not checked.
	s.checkSets("--readers", "deltalake,duckdb", "--no-order")
	s.wants(0, "verify", "--kafka")
	s.wants(0, "audit", "verify")
	if c := s.countLetters(withoutFlood); c.Distinct != replayed || c.Replayed != replayed || c.Unresolved != 0 {
		t.Errorf("list says %+v, want %d replayed dead letters", c, replayed)
	}
	rows, versions = s.replayRows()
	intents := s.intents()
	t.Logf("replays added %d rows in %d versions; intents by outcome: %v", rows, versions, intents)
	if rows != replayed || intents[""] > 0 {
		t.Errorf("%d rows of replays, want %d; %d intents have no outcome", rows, replayed, intents[""])
	}
	watch.compare("replaying")
}

// countsLetters waits until a member counts n unresolved dead letters, and returns how long that took.
func (m *member) countsLetters(n int) time.Duration {
	m.s.t.Helper()
	began := time.Now()
	m.s.await(fmt.Sprintf("%s counts %d unresolved dead letters", m.Name, n), func() (bool, error) {
		count, there := m.sum("sluice_unresolved_dead_letters")
		return there && count == float64(n), nil
	})
	return time.Since(began).Round(100 * time.Millisecond)
}

// TestReplay_Parked replays records that still cannot become rows. After the third replay they must be parked, and a
// fourth one must leave them out. Then the configuration is corrected. A replay with --state parked must make rows of
// the records that it accepts, and the others must stay parked.
func TestReplay_Parked(t *testing.T) {
	t.Parallel()
	s := newScene(t, 2).strict()
	s.orders.Bad = 200
	refuses := s.start(refusing)
	p := s.producer(3000, "lz4")
	p.Corrected = s.ledger
	if err := p.Run(s.ctx, s.ledger); err != nil {
		t.Fatal(err)
	}
	s.awaitPassed()
	bad, correctable := int(s.badLedger.Len()), 0
	for _, line := range s.lines(s.badLedger) {
		if strings.HasPrefix(line, gen.UnknownField+" ") {
			correctable++
		}
	}
	t.Logf("%d bad records, %d of them with unknown fields alone", bad, correctable)
	failed := func(r replayResult) (n int) {
		for _, of := range r.Failed {
			n += of
		}
		return n
	}
	for range 3 {
		if r := s.replays(nil, refusing).ended(1); r.Rows != 0 || failed(r) != bad {
			t.Errorf("%+v, want %d failures", r, bad)
		}
	}
	fourth := s.replays(nil, refusing)
	fourth.ended(0)
	if text := fourth.Tail(); !strings.Contains(text, fmt.Sprintf("left out: %d parked\nnothing to do", bad)) {
		t.Error(text)
	}
	if c := s.countLetters(refusing); c.Unresolved != bad || c.Parked != bad {
		t.Errorf("list says %+v, want %d parked dead letters", c, bad)
	}
	refuses.countsLetters(bad)
	refuses.drain()

	m := s.start(withoutFlood)
	s.replays(nil, withoutFlood).ended(0) // a replay leaves parked dead letters out unless it asks for them
	if r := s.replays([]string{"--state", "parked"}, withoutFlood).ended(1); r.Rows != int64(correctable) || failed(r) != bad-correctable {
		t.Errorf("%+v, want %d rows", r, correctable)
	}
	if c := s.countLetters(withoutFlood); c.Replayed != correctable || c.Unresolved != bad-correctable || c.Parked != c.Unresolved {
		t.Errorf("list says %+v, want %d replayed dead letters", c, correctable)
	}
	m.countsLetters(bad - correctable)
	m.drain()
	s.untilCurrent(withoutFlood)
	s.checkSets("--readers", "duckdb,polars", "--no-order")
	s.checkLetters(correctable) // the dead letters of replayed records stay in the letter table
	s.wants(0, "verify", "--kafka")
	s.wants(0, "audit", "verify")
}

// financial is a setting like withoutFlood for a topic whose dead letters have the class financial.
func financial(c *settings) {
	c.bad = "dead_letter\n  dead_letters: {hold_above: 100%, class: financial}"
}

// leftBehind is a scene after a replay was killed while the PUT of its commit was on its way. m is a running member.
// commit is the fault that holds this PUT.
type leftBehind struct {
	*scene
	m      *member
	commit *lab.Fault
}

const (
	leftReplaying = 500 // dead letters in the killed replay
	leftOthers    = 300 // dead letters that no replay takes
)

// leavesReplay makes leftReplaying dead letters with unknown fields and leftOthers with syntax errors, and kills a
// replay of the first kind. If become is true, the ledger gets the rows of the replayed records.
func leavesReplay(t *testing.T, become bool) *leftBehind {
	t.Helper()
	s := newScene(t, 2).strict()
	refuses := func(c *settings) {
		financial(c)
		c.bad += strictly(gen.Policy{Strict: true})
	}
	m := s.start(refuses)
	s.produce(1000)
	unknown := s.correctable(leftReplaying)
	if !become {
		unknown.Corrected = nil
	}
	others := s.producer(leftOthers, "lz4")
	others.Orders.Bad, others.Orders.Only = 1000, "syntax"
	for _, p := range []gen.Producer{unknown, others} {
		if err := p.Run(s.ctx, s.ledger); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitPassed()
	m.countsLetters(leftReplaying + leftOthers)
	ours := func(r *http.Request) bool { return lab.CommitPut(r) && s.replayPut(r) }
	return &leftBehind{s, m, s.killedAtPut(1, ours, []string{"--code", gen.UnknownField}, financial)}
}

// decides runs a subcommand of `connector deadletters` that changes dead letters, such as discard. It returns the exit
// code and the output.
func (s *leftBehind) decides(command string, args ...string) (code int, text string) {
	s.t.Helper()
	path, _ := s.config(financial)
	return s.command(append(s.letterCommand(command, args...), "--config", path)...)
}

// acknowledges runs `connector deadletters acknowledge` for the dead letters with syntax errors, which no replay has
// chosen. The command must succeed although the killed replay has no outcome. Then the member must count left
// unresolved dead letters.
func (s *leftBehind) acknowledges(left int) {
	s.t.Helper()
	if code, text := s.decides("acknowledge", "--topic", s.name, "--code", "syntax"); code != 0 {
		s.t.Errorf("acknowledge: exit code %d: %s", code, tail([]byte(text)))
	}
	s.t.Logf("%d unresolved dead letters %v after acknowledge", left, s.m.countsLetters(left))
}

// sound expects n rows, the rows of the ledger in the table, and exit code 0 from `connector verify --kafka` and
// `connector audit verify`.
func (s *leftBehind) sound(n int64) {
	s.t.Helper()
	s.m.drain()
	s.untilCurrent(financial)
	if rows := s.rows(); rows != n {
		s.t.Errorf("%d rows, want %d", rows, n)
	}
	s.checkSets("--readers", "deltalake,duckdb", "--no-order")
	s.wants(0, "verify", "--kafka")
	s.wants(0, "audit", "verify")
}

// TestReplay_Discard kills a replay while its commit is on its way to the store, and then discards its dead letters.
// None of them may be both discarded and a row.
func TestReplay_Discard(t *testing.T) {
	t.Parallel()
	// The PUT of the killed replay has not taken effect. The command discard must be refused until the replay has been
	// open for a minute, and then it must withdraw the replay. When the PUT arrives later, it must add no row.
	t.Run("Withdrawn", func(t *testing.T) {
		t.Parallel()
		s := leavesReplay(t, false)
		if c := s.countLetters(financial); c.Replaying != leftReplaying || c.Unresolved != leftReplaying+leftOthers {
			t.Errorf("list says %+v, want %d replaying dead letters", c, leftReplaying)
		}
		s.acknowledges(leftReplaying)
		refused, began := 0, time.Now()
		s.await("discard is accepted", func() (bool, error) {
			code, text := s.decides("discard", "--topic", s.name, "--code", gen.UnknownField)
			if code == 4 && strings.Contains(text, "try again in a minute") {
				refused++
				time.Sleep(2 * time.Second) // every attempt starts a process, so they must not come too often
				return false, nil
			}
			if code != 0 {
				return false, fmt.Errorf("exit code %d: %s", code, text)
			}
			return true, nil
		})
		if refused == 0 {
			t.Error("discard did not wait for the open replay")
		}
		t.Logf("discard was refused %d times, for %v", refused, time.Since(began).Round(time.Second))
		t.Logf("0 unresolved dead letters %v after discard", s.m.countsLetters(0))
		s.commit.Release(true)
		if r := s.replays(nil, financial); r.ended(0).Rows != 0 {
			t.Error(r.Tail())
		}
		if c := s.countLetters(financial); c.Discarded != leftReplaying || c.Acknowledged != leftOthers || c.Unresolved != 0 {
			t.Errorf("list says %+v", c)
		}
		if rows, versions := s.replayRows(); rows > 0 {
			t.Errorf("the withdrawn replay has added %d rows in %d versions", rows, versions)
		}
		s.sound(1000)
		t.Logf("intents by outcome: %v", s.intents())
	})
	// The commit has taken effect: the dead letters are replayed, and cannot be discarded.
	t.Run("Landed", func(t *testing.T) {
		t.Parallel()
		s := leavesReplay(t, true)
		s.commit.Release(true)
		s.awaitRows(1000 + leftReplaying)
		if code, text := s.decides("discard", "--topic", s.name, "--code", gen.UnknownField); code != 0 || !strings.Contains(text, fmt.Sprintf("left out: %d replayed\nnothing to do", leftReplaying)) {
			t.Errorf("discard: exit code %d: %s", code, text)
		}
		t.Logf("%d unresolved dead letters %v after discard", leftOthers, s.m.countsLetters(leftOthers))
		s.acknowledges(0)
		if c := s.countLetters(financial); c.Replayed != leftReplaying || c.Acknowledged != leftOthers || c.Unresolved != 0 {
			t.Errorf("list says %+v", c)
		}
		s.sound(1000 + leftReplaying)
	})
}
