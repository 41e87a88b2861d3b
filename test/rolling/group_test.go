//go:build lab

package rolling

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/internal/laketest"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/test/lab"
)

const partitions = 4

// A group is a lake, its members of both versions, and what was produced for them.
type group struct {
	*laketest.Lake
	running []*lab.Process
	all     []*lab.Process     // also those that have ended
	configs map[version]string // the paths of the configurations

	mu     sync.Mutex
	good   map[string]map[string][]int64 // the offsets of records that become rows, by table and partition
	rounds int                           // the calls of produceAlways
	twice  int                           // the records that are duplicates
	bad    []string                      // the coordinates of records that become dead letters
	next   map[string][]int64            // the next offsets of a topic's partitions
}

// newGroup returns a group without members. sections has more of the configuration. The configurations differ in the section ops, which the earlier version
// does not know and refuses.
func newGroup(t *testing.T, sections string) *group {
	l := laketest.New(t, `defaults: {schema: "id string not null, n int", commit: {every: 200ms}, identity: {by: "field:id"}}
topics: {orders: {}, users: {}}
`+sections)
	const section = "ops: {listen: \"\"}\n"
	configs := map[version]string{before: l.As(section, "").Config, now: l.Config}
	return &group{Lake: l, configs: configs, good: map[string]map[string][]int64{}, next: map[string][]int64{}}
}

// topic creates a topic.
func (g *group) topic(name string) {
	g.T.Helper()
	g.Create(name, partitions)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.good[name], g.next[name] = map[string][]int64{}, make([]int64, partitions)
}

// produceAlways produces records to each topic that exists, until stop is called. One record in nineteen is bad, and one in
// ten comes twice.
func (g *group) produceAlways() (stop func()) {
	g.rounds++
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
			g.mu.Lock()
			topics := make([]string, 0, len(g.good))
			for topic := range g.good {
				topics = append(topics, topic)
			}
			g.mu.Unlock()
			for _, topic := range topics {
				err := g.produceOne(topic, n, false)
				if err == nil && n%10 == 0 {
					err = g.produceOne(topic, n, true)
				}
				if err != nil {
					g.T.Error(err)
					return
				}
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-done })
}

// produceOne produces record n of a topic. again says that it has been produced before: a good one becomes no row then.
func (g *group) produceOne(topic string, n int, again bool) error {
	value := fmt.Sprintf(`{"id":"%s-%d-%d","n":%d}`, topic, g.rounds, n, n)
	if n%19 == 0 {
		value = fmt.Sprintf(`{"id":"%s-%d-%d","n":"text"}`, topic, g.rounds, n)
	}
	r := &kgo.Record{Topic: topic, Partition: int32(n % partitions), Key: fmt.Append(nil, n%7), Value: []byte(value)}
	if err := g.Client.ProduceSync(g.T.Context(), r).FirstErr(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := fmt.Sprintf("%s:%d", topic, r.Partition)
	g.next[topic][r.Partition] = r.Offset + 1
	switch {
	case n%19 == 0:
		g.bad = append(g.bad, fmt.Sprintf("%s@%d", at, r.Offset))
	case again:
		g.twice++
	default:
		g.good[topic][at] = append(g.good[topic][at], r.Offset)
	}
	return nil
}

// start starts a member.
func (g *group) start(v version) *lab.Process {
	g.T.Helper()
	name := fmt.Sprintf("%s-%d", v.name, len(g.all))
	p, err := lab.StartProcess(name, filepath.Join(g.Dir, name+".log"), []string{"GOMEMLIMIT=200MiB"}, v.binary, "run", "--config", g.configs[v])
	if err != nil {
		g.T.Fatal(err)
	}
	g.T.Cleanup(func() { _ = p.Kill() }) // it has ended, or the test has failed
	g.running, g.all = append(g.running, p), append(g.all, p)
	g.Await(name+" has joined", func() bool {
		g.alive()
		return len(g.lines(p, "joined")) > 0
	})
	return p
}

// alive expects the members to run.
func (g *group) alive() {
	g.T.Helper()
	for _, p := range g.running {
		if !p.Running() {
			g.T.Fatalf("%s ended with exit code %d\n%s", p.Name, p.ExitCode(), p.Tail())
		}
	}
}

// stop drains a member.
func (g *group) stop(p *lab.Process) {
	g.T.Helper()
	if err := p.Stop(laketest.HangGuard); err != nil {
		g.T.Fatal(err)
	}
	if code := p.ExitCode(); code != 0 {
		g.T.Errorf("%s: exit code %d\n%s", p.Name, code, p.Tail())
	}
	g.running = slices.DeleteFunc(g.running, func(other *lab.Process) bool { return other == p })
}

// kill ends a member with SIGKILL.
func (g *group) kill(p *lab.Process) {
	g.T.Helper()
	if err := p.Kill(); err != nil {
		g.T.Fatal(err)
	}
	g.running = slices.DeleteFunc(g.running, func(other *lab.Process) bool { return other == p })
}

// lines returns the lines of a member's log whose message contains msg.
func (g *group) lines(p *lab.Process, msg string) (all []laketest.Line) {
	g.T.Helper()
	text, err := os.ReadFile(p.Log)
	if err != nil {
		g.T.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var at laketest.Line
		if err := json.Unmarshal(line, &at); err != nil {
			continue // the process is writing this line, or it is the stack of a panic, after which the member has ended
		}
		if s, ok := at["msg"].(string); ok && strings.Contains(s, msg) {
			all = append(all, at)
		}
	}
	return all
}

// count returns the number of lines with msg in the logs of all members.
func (g *group) count(msg string) (n int) {
	g.T.Helper()
	for _, p := range g.all {
		n += len(g.lines(p, msg))
	}
	return n
}

// fences is the number of batches that members dropped because another one was faster.
func (g *group) fences() int { g.T.Helper(); return g.count("FENCED") }

// positions returns the positions of a topic's partitions in its table, 0 if there is none.
func (g *group) positions(topic string) []int64 {
	g.T.Helper()
	at := make([]int64, partitions)
	state, err := deltalog.Load(g.T.Context(), objstore.Sub(g.Store, topic))
	if errors.Is(err, deltalog.ErrNoTable) {
		return at
	}
	if err != nil {
		g.T.Fatal(err)
	}
	of, err := g.PartitionsOf(topic)
	if err != nil {
		g.T.Fatal(err)
	}
	for id := range at {
		p := connector.Partition{Cluster: of.Cluster, Topic: of.Name, TopicID: of.ID, ID: int32(id)}
		at[id] = state.Txns[p.AppID("p")].Version
	}
	return at
}

// progress waits until the tables have all that was produced before the call, and returns the number of fences meanwhile.
func (g *group) progress(topics ...string) (fences int) {
	g.T.Helper()
	began := g.fences()
	for _, topic := range topics {
		g.mu.Lock()
		want := slices.Clone(g.next[topic])
		g.mu.Unlock()
		g.Await("table "+topic+" has what was produced", func() bool {
			g.alive()
			at := g.positions(topic)
			for id := range want {
				if at[id] < want[id] {
					return false
				}
			}
			return true
		})
	}
	return g.fences() - began
}

// calm waits until a round of records brings no fence.
func (g *group) calm(topics ...string) {
	g.T.Helper()
	g.Await("members commit without fences", func() bool { return g.progress(topics...) == 0 })
}

// run runs a command of a version and returns its output.
func (g *group) run(v version, want int, args ...string) string {
	g.T.Helper()
	cmd := exec.CommandContext(g.T.Context(), v.binary, append(args, "--config", g.configs[v])...)
	cmd.Env = append(os.Environ(), "USER=operator")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		g.T.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != want {
		g.T.Errorf("%s: %s: exit code %d, not %d\n%s%s", v.name, strings.Join(args, " "), code, want, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

// holdsOf returns how often members logged a hold of a partition with this reason.
func (g *group) holdsOf(topic string, partition int, reason string) (n int) {
	g.T.Helper()
	for _, p := range g.all {
		for _, line := range g.lines(p, "HOLD") {
			if line["topic"] == topic && line["partition"] == float64(partition) && line["reason"] == reason {
				n++
			}
		}
	}
	return n
}

// logAndRegistrations matches warnings about what both versions write and read.
var logAndRegistrations = regexp.MustCompile(`operations log|registration|member|fingerprint`)

// complaints returns the lines of level ERROR and the holds of all members, without pauses, dead letters and topics that do
// not exist yet.
func (g *group) complaints() (all []string) {
	g.T.Helper()
	for _, p := range g.all {
		for _, line := range g.lines(p, "") {
			msg, _ := line["msg"].(string)
			switch {
			case msg == "HOLD" && (line["reason"] == "paused" || line["reason"] == "topic_missing"), strings.Contains(msg, "become dead letters"):
			case line["level"] == "ERROR", msg == "HOLD", line["level"] == "WARN" && logAndRegistrations.MatchString(msg):
				text, _ := json.Marshal(line)
				all = append(all, p.Name+": "+string(text))
			}
		}
	}
	return all
}

// letterList is what `deadletters list` prints as JSON.
type letterList struct {
	Distinct, Unresolved, Acknowledged, Discarded, Replayed, Void int

	Listed []struct {
		Topic     string
		Partition int32
		Offset    int64
	}
}

// deadLetters returns the dead letters as a version lists them.
func (g *group) deadLetters(v version) (list letterList) {
	g.T.Helper()
	text := g.run(v, 0, "deadletters", "list", "--limit", "100000", "--output", "json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		g.T.Fatalf("%v\n%.2000s", err, text)
	}
	return list
}

// equal expects the tables to have the rows of all good records, once each, and the dead letters of all bad ones, as both
// versions read them. The producer must have stopped.
func (g *group) equal() {
	g.T.Helper()
	for topic, want := range g.good {
		g.Has(topic, want)
	}
	want := slices.Clone(g.bad)
	slices.Sort(want)
	for _, v := range []version{before, now} {
		var listed []string
		for _, l := range g.deadLetters(v).Listed {
			listed = append(listed, fmt.Sprintf("%s:%d@%d", l.Topic, l.Partition, l.Offset))
		}
		slices.Sort(listed)
		if d := cmp.Diff(want, listed); d != "" {
			g.T.Errorf("dead letters by the version %s (-produced +listed):\n%s", v.name, d)
		}
		g.run(v, 0, "verify", "--kafka")
		g.run(v, 0, "audit", "verify")
	}
}
