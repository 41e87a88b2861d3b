//go:build lab

package e2e

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// strictly returns the part of a table's configuration that makes the records bad which are bad under p.
func strictly(p gen.Policy) (text string) {
	if p.Strict {
		text += "\n  unknown_fields: dead_letter"
	}
	if p.Keys {
		text += "\n  keys: required"
	}
	if p.Tombstones {
		text += "\n  tombstones: dead_letter"
	}
	return text
}

// poisoned makes one in ten of the scene's later records bad, of every kind that is not large, and returns the scene.
func (s *scene) poisoned() *scene {
	s.badLedger = s.newLedger("bad.csv")
	s.orders.Bad, s.orders.Policy = 100, gen.Policy{Strict: true, Keys: true, Tombstones: true}
	return s
}

// awaitPassed waits until the table's positions are past every produced record, the bad ones included.
func (s *scene) awaitPassed() {
	s.t.Helper()
	for _, ends := range []map[int32]int64{s.ledger.Ends(), s.badLedger.Ends()} {
		for partition, end := range ends {
			s.awaitPosition(partition, end)
		}
	}
}

// deadLetters returns the name of the dead-letter topic.
func (s *scene) deadLetters() string { return s.name + "-dlq" }

// inDeadLetterTopic reads the dead-letter topic and returns the hash of each copy of a dead letter, by coordinates.
func (s *scene) inDeadLetterTopic() map[gen.Coordinates][]string {
	s.t.Helper()
	letters := map[gen.Coordinates][]string{}
	s.eachIn(s.deadLetters(), func(r *kgo.Record) {
		at, hash := s.letterOf(r)
		letters[at] = append(letters[at], hash)
	})
	return letters
}

// eachIn calls f for each record that is in a topic now, read with an independent client; never if there is no topic.
func (s *scene) eachIn(topic string, f func(*kgo.Record)) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	listed, err := kadm.NewClient(client).ListEndOffsets(s.ctx, topic)
	if err != nil {
		s.t.Fatal(err)
	}
	left := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		switch {
		case o.Err == kerr.UnknownTopicOrPartition: //nolint:errorlint // the client does not wrap it
		case o.Err != nil:
			s.t.Fatal(o.Err)
		case o.Offset > 0:
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fetched := client.PollFetches(s.ctx)
		if err := fetched.Err(); err != nil {
			s.t.Fatal(err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			f(r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
}

// letterOf returns the coordinates of the record of a dead letter, and the hash of the record as [gen.Record.Raw]
// computes it. The produced records have no headers, so the first header must be one that Sluice has added.
func (s *scene) letterOf(r *kgo.Record) (gen.Coordinates, string) {
	s.t.Helper()
	if len(r.Headers) == 0 || r.Headers[0].Key != "sluice.version" {
		s.t.Fatalf("%s:%d@%d is not a dead letter of a record without headers", r.Topic, r.Partition, r.Offset)
	}
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(headers[name], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return n
	}
	record := gen.Record{Key: r.Key, Value: r.Value, Code: headers["sluice.reason"]}
	return gen.Coordinates{Topic: headers["sluice.topic"], Partition: int32(number("sluice.partition")), Offset: number("sluice.offset")}, record.Raw()
}

// lines returns the hashes in a ledger's file, by coordinates.
func (s *scene) lines(l *gen.Ledger) map[gen.Coordinates]string {
	s.t.Helper()
	if err := l.Flush(); err != nil {
		s.t.Fatal(err)
	}
	file, err := os.Open(l.Path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[gen.Coordinates]string{}
	for _, line := range lines[1:] {
		partition, err := strconv.ParseInt(line[1], 10, 32)
		if err != nil {
			s.t.Fatal(err)
		}
		offset, err := strconv.ParseInt(line[2], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		all[gen.Coordinates{Topic: line[0], Partition: int32(partition), Offset: offset}] = line[3]
	}
	return all
}

// letterCounts are the counts of `connector deadletters list`.
type letterCounts struct {
	Letters, Distinct, Unresolved, Void, Pending, Unknown int
	Replaying, Parked, Acknowledged, Discarded, Replayed  int
}

func (s *scene) countLetters(change ...setting) (c letterCounts) {
	s.t.Helper()
	path, _ := s.config(change...)
	code, text := s.command("deadletters", "list", s.name, "--limit", "1", "--output", "json", "--config", path)
	object := text[max(0, strings.Index(text, "{\n")):] // warnings come before the JSON object
	if err := json.Unmarshal([]byte(object), &c); err != nil || code != 0 {
		s.t.Fatalf("exit code %d: %v: %s", code, err, tail([]byte(text)))
	}
	return c
}

// checkLetters compares the dead-letter topic and the table of dead letters with the produced records, each with
// independent readers. Every bad record has a dead letter, byte for byte. Each record is either in the table or a dead
// letter; void dead letters are the only exception.
func (s *scene) checkLetters(void int) {
	s.t.Helper()
	bad, letters := s.lines(s.badLedger), s.inDeadLetterTopic()
	for at, copies := range letters {
		if i := slices.IndexFunc(copies, func(hash string) bool { return hash != bad[at] }); i >= 0 {
			s.t.Errorf("the dead letter of %v has hash %s, want that of the record, %q", at, copies[i], bad[at])
		}
	}
	if err := s.ledger.Flush(); err != nil {
		s.t.Fatal(err)
	}
	args := []string{
		"--ledger", s.ledger.Path, "--bad", s.badLedger.Path, "--letters", s.tableURL(s.name + "_letters"), "--endpoint", s.minio.Endpoint, "--void", strconv.Itoa(void),
	}
	if s.ledger.Len() > 0 {
		args = append(args, "--table", s.tableURL(s.name))
	}
	out, err := lab.Python(s.ctx, "oracle/letters.py", args...)
	s.t.Logf("%d bad records, %d of them in the dead-letter topic\n%s", len(bad), len(letters), out)
	if err != nil {
		s.t.Errorf("rows and dead letters differ from the produced records: %v", err)
	}
}

// tableURL returns the URL of a table of the pipeline.
func (s *scene) tableURL(table string) string {
	return "s3://" + s.bucket.Name + "/" + filepath.Dir(s.log.Table) + "/" + table
}

// flap makes the store fail and work in turns until end is called, and work from then on.
func flap(p *lab.S3Proxy) (end func()) {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		defer p.Heal()
		for there := false; ; there = !there {
			if there {
				p.Heal()
			} else {
				p.Break(lab.Any, 1<<16, lab.Answer(http.StatusServiceUnavailable, false))
			}
			select {
			case <-stop:
				return
			case <-time.After(flapEvery):
			}
		}
	})
	return func() { close(stop); done.Wait() }
}

// TestPoison_StoreFlaps produces records of which one in ten is bad while the store fails and works in turns. Each
// record must be in exactly one place, unchanged: the table or the dead letters.
func TestPoison_StoreFlaps(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4).poisoned()
	proxy := s.proxy()
	m := s.start(through(proxy))
	s.produce(1000)
	s.awaitPassed()
	calm := flap(proxy)
	p := s.producer(poisonRecords, "zstd")
	p.PerSecond = poisonRate
	if err := p.Run(s.ctx, s.ledger); err != nil {
		t.Fatal(err)
	}
	calm()
	s.awaitPassed()
	m.drain()
	s.untilCurrent() // another run also moves the dead letters into their table
	s.check("--readers", "duckdb", "--no-order")
	s.checkLetters(0)
	c := s.countLetters()
	if n := int(s.badLedger.Len()); c.Distinct != n || c.Unresolved != n || c.Letters < n {
		t.Errorf("%+v, want %d unresolved dead letters", c, n)
	}
}

// TestPoisonIsNoOutage expects that bad records open no breaker and leave the member ready.
func TestPoisonIsNoOutage(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4).poisoned()
	m := s.start()
	s.produce(poisonRecords / 2)
	s.awaitPassed()
	if n, known := m.sum("sluice_breaker_changes_total"); n != 0 {
		t.Errorf("breakers changed %v times, want none (metric exists: %v)", n, known)
	}
	if n := m.metric("sluice_breaker_state"); n != 0 {
		t.Errorf("the sum of breaker states is %v, want 0 (all closed)", n)
	}
	r, err := m.health()
	if err != nil || r.Status != "degraded" || !r.Ready || len(r.Holds) > 0 {
		t.Errorf("%+v %v", r, err)
	}
	if r.Components["breakers"].Status != "ok" || r.Components["letters"].Status != "degraded" {
		t.Errorf("%+v", r.Components)
	}
	m.drain()
	s.untilCurrent()
	s.checkLetters(0)
}

// TestFlood has a topic with only bad records. It must be held before a dead letter is written, while another topic
// continues. Once an operator allows the flood, the letters must be written and the hold must end.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := newScene(t, 2)
	s.badLedger = s.newLedger("bad.csv")
	flood := *s
	flood.name = s.name + ".flood"
	flood.ledger, flood.badLedger = s.newLedger("flood.csv"), s.newLedger("flood-bad.csv")
	flood.log = &tablelog.Log{Store: s.bucket, Table: s.name + "/" + flood.name}
	flood.orders.Bad = 1000
	if err := shared.kafka.CreateTopic(s.ctx, flood.name, 2, nil); err != nil {
		t.Fatal(err)
	}
	both := alsoReads(flood.name + ": {}")
	m := s.start(both)
	s.produce(2000)
	flood.produce(1000)
	m.await("the flood is held", func(r report) bool {
		n := 0
		for _, h := range r.Holds {
			if h.Reason == "flood" && h.Offset == 0 {
				n++
			}
		}
		return n == 2 && len(r.Holds) == 2
	})
	m.lints() // now there are holds, whose metrics promtool must check, too
	s.produce(2000)
	s.awaitRows(4000)
	if letters := flood.inDeadLetterTopic(); len(letters) > 0 {
		t.Errorf("%d dead letters were written before an operator allowed them", len(letters))
	}

	path, _ := s.config(both)
	if code, text := s.command("deadletters", "allow", flood.name, "--for", "10m", "--operator", "e2e", "--reason", "they are bad indeed", "--yes", "--config", path); code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	m.await("the hold is over", func(r report) bool { return r.Ready && len(r.Holds) == 0 })
	flood.awaitPassed()
	m.lints() // now there are dead letters, whose metrics promtool must check, too
	m.drain()
	if code, text := s.command("run", "--until-current", "--config", path); code != 0 {
		t.Fatalf("exit code %d: %s", code, tail([]byte(text)))
	}
	flood.checkLetters(0)
	s.checkSets("--readers", "polars", "--no-order")
}

// holdsCommit makes the proxy hold the next commit to the scene's own table.
func (s *scene) holdsCommit(p *lab.S3Proxy) *lab.Fault {
	return p.Break(func(r *http.Request) bool {
		return lab.CommitPut(r) && strings.Contains(r.URL.Path, "/"+s.log.Table+"/_delta_log/")
	}, 1, lab.Hold)
}

// TestAlterBetweenLettersAndCommit adds a column to the table after dead letters were written and before the commit
// that passes their records. Every record must still be a row or have a dead letter; only one with a void letter has
// both.
func TestAlterBetweenLettersAndCommit(t *testing.T) {
	t.Parallel()
	s := newScene(t, 2).poisoned()
	proxy := s.proxy()
	m := s.start(through(proxy))
	s.produce(1000)
	s.awaitPassed()
	before := len(s.inDeadLetterTopic())
	commit := s.holdsCommit(proxy)
	s.produce(2000)
	s.met(commit)
	if after := len(s.inDeadLetterTopic()); after <= before {
		t.Errorf("a commit is in flight, but there are only %d dead letters, as before", after)
	}
	s.addColumn("note")
	commit.Release(true)
	s.awaitPassed()
	m.drain()
	s.untilCurrent()
	s.wants(0, "verify", "--kafka")
	s.checkLetters(s.countLetters().Void)
}

// addColumn commits new metadata as another writer does: with one more column, and all columns nullable.
func (s *scene) addColumn(name string) {
	s.t.Helper()
	commits := s.commits()
	body, err := s.bucket.Get(s.ctx, fmt.Sprintf("%s/_delta_log/%020d.json", s.log.Table, 0))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		var action struct {
			Metadata map[string]any `json:"metaData"`
		}
		if err := json.Unmarshal([]byte(line), &action); err != nil {
			s.t.Fatal(err)
		}
		if action.Metadata == nil {
			continue
		}
		columns := strings.ReplaceAll(action.Metadata["schemaString"].(string), `"nullable":false`, `"nullable":true`)
		column := fmt.Sprintf(`,{"name":%q,"type":"string","nullable":true,"metadata":{}}]}`, name)
		action.Metadata["schemaString"] = strings.TrimSuffix(columns, "]}") + column
		text, err := json.Marshal(action)
		if err != nil {
			s.t.Fatal(err)
		}
		text = append(text, "\n"+`{"commitInfo":{"timestamp":1,"operation":"ADD COLUMNS"}}`+"\n"...)
		if err := s.bucket.Create(s.ctx, fmt.Sprintf("%s/_delta_log/%020d.json", s.log.Table, len(commits)), text); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	s.t.Fatal("the table has no metadata in its first version")
}

// lax is a setting that accepts records with unknown fields. Earlier dead letters of such records become void.
func lax(c *settings) { c.bad = "dead_letter" + strictly(gen.Policy{Keys: true, Tombstones: true}) }

// willBeVoid returns the number of records that have a dead letter, are at or after the table's position, and become
// rows under the setting lax.
func (s *scene) willBeVoid() (n int) {
	s.t.Helper()
	positions := tablelog.Positions(s.commits())
	for at, copies := range s.inDeadLetterTopic() {
		if at.Offset >= positions[at.Partition] && strings.HasPrefix(copies[0], "unknown_field ") {
			n++
		}
	}
	return n
}

// TestVoidLetters kills a member after it has written dead letters and before it commits the positions that pass their
// records. The next member accepts some of these records as rows, and `connector deadletters list` must count their
// dead letters as void. A dead letter that both members have written must count once.
func TestVoidLetters(t *testing.T) {
	t.Parallel()
	s := newScene(t, 2).poisoned()
	proxy := s.proxy()
	m := s.start(through(proxy))
	s.produce(1000)
	s.awaitPassed()
	commit := s.holdsCommit(proxy)
	s.produce(2000)
	s.met(commit)
	m.kill()
	commit.Release(false)
	unread := s.willBeVoid()
	path, _ := s.config(lax)
	for range 2 { // the second run also reads the dead letters that the first run wrote
		if code, text := s.command("run", "--until-current", "--config", path); code != 0 {
			t.Fatalf("exit code %d: %s", code, tail([]byte(text)))
		}
	}
	c := s.countLetters(lax)
	if c.Void != unread || unread == 0 || c.Letters <= c.Distinct || c.Pending+c.Unknown != 0 || c.Unresolved != c.Distinct-unread {
		t.Errorf("%+v, want %d void dead letters, and repeats of others", c, unread)
	}
	s.checkLetters(unread)
}
