//go:build lab

package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/tablelog"
)

// positions returns the table's positions.
func (s *scene) positions() map[int32]int64 {
	s.t.Helper()
	return tablelog.Positions(s.commits())
}

// awaitOthers waits until the table has the last committed record of every partition except the held ones.
func (s *scene) awaitOthers(held ...int32) {
	s.t.Helper()
	ends := maps.Clone(s.ledger.Ends())
	for _, partition := range held {
		delete(ends, partition)
	}
	for partition, end := range ends {
		s.awaitPosition(partition, end)
	}
}

// wantHeld expects the partition to stay at position at while the other partitions become current, and expects `run
// --until-current` to report the hold.
func (s *scene) wantHeld(m *member, partition int32, at int64) {
	s.t.Helper()
	s.awaitOthers(partition)
	s.produce(4000)
	s.awaitOthers(partition)
	if position := s.positions()[partition]; position != at {
		s.t.Errorf("partition %d has position %d in the table, want %d", partition, position, at)
	}
	m.drain()
	s.wants(1, "run", "--until-current")
}

// TestBehindLogStart deletes records of a partition in Kafka before the member reads them. The partition must be held
// at its position until `offsets accept-gap` moves it to the first record that is left. Other partitions continue.
func TestBehindLogStart(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	s.produce(4000)
	s.untilCurrent()
	at := s.positions()[0]
	s.produce(4000)
	if err := shared.kafka.DeleteRecords(s.ctx, s.name, 0, at+100); err != nil {
		t.Fatal(err)
	}
	m := s.start()
	if offset := m.awaitHold(0, "behind_log_start"); offset != at {
		t.Errorf("held at %d, want %d", offset, at)
	}
	s.told(m, 0, "behind_log_start", at)
	s.wantHeld(m, 0, at)
	s.check("--held", fmt.Sprintf("0:%d", at))
	if to := s.ends(0, "behind_log_start", at, "accept-gap", s.target(0)); to != at+100 {
		t.Errorf("accept-gap goes on at %d, want %d", to, at+100)
	}
	s.check("--lost", fmt.Sprintf("0:%d:%d", at, at+100))
}

// TestAheadOfLogEnd forges a commit with a position after the end of the log. The partition must be held there until
// `offsets set` moves the position back. Other partitions continue.
func TestAheadOfLogEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	s.produce(4000)
	s.untilCurrent()
	at := s.positions()[1]
	if err := s.log.Forge(s.ctx, 1, at+100_000); err != nil {
		t.Fatal(err)
	}
	m := s.start()
	if offset := m.awaitHold(1, "ahead_of_log_end"); offset != at+100_000 {
		t.Errorf("held at %d, want %d", offset, at+100_000)
	}
	s.told(m, 1, "ahead_of_log_end", at+100_000)
	s.wantHeld(m, 1, at+100_000)
	s.checkSets("--held", fmt.Sprintf("1:%d", at))
	// The forged commit has no range, so verify must name its position.
	if text := s.wants(1, "verify"); !strings.Contains(text, fmt.Sprint(at+100_000)) {
		t.Errorf("verify does not name the forged position: %s", text)
	}
	s.ends(1, "ahead_of_log_end", at+100_000, "set", s.target(1), fmt.Sprint(at))
	s.checkSets()
}

// TestTopicRecreated deletes the topic and creates it again, with more or fewer records than before. All partitions
// must be held, and the table must get no rows, until `offsets start` accepts the new topic. Then the new topic's
// records must become rows.
func TestTopicRecreated(t *testing.T) {
	t.Parallel()
	for name, records := range map[string]int64{"more": 8000, "fewer": 1000} { // the topic had 4000 records before
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topicRecreated(t, records)
		})
	}
}

func topicRecreated(t *testing.T, records int64) {
	t.Helper()
	s := newScene(t, 4)
	s.produce(4000)
	s.untilCurrent()
	before := s.positions()
	if err := shared.kafka.DeleteTopic(s.ctx, s.name); err != nil {
		t.Fatal(err)
	}
	if err := shared.kafka.CreateTopic(s.ctx, s.name, 4, nil); err != nil {
		t.Fatal(err)
	}
	recreated := s.newLedger("recreated.csv")
	// The new topic's records must not be in the table when s.check compares it with s.ledger: they have another ledger.
	if err := s.producer(records, "lz4").Run(s.ctx, recreated); err != nil {
		t.Fatal(err)
	}
	m := s.start()
	for partition := range int32(4) {
		m.awaitHold(partition, "topic_recreated")
	}
	m.drain()
	s.wants(1, "run", "--until-current")
	for partition, position := range s.positions() {
		if position != before[partition] {
			t.Errorf("partition %d moved from %d to %d", partition, before[partition], position)
		}
	}
	s.check()
	s.ends(0, "topic_recreated", -1, "start", s.name)
	if rows, want := tablelog.Rows(s.commits()), s.ledger.Len()+recreated.Len(); rows != want {
		t.Errorf("the table has %d rows, want the %d of both topics", rows, want)
	}
	s.wants(0, "verify")
}

// TestCorruptBatch flips a bit of a record batch on the broker's disk. The partition must be held at the batch's first
// offset until `offsets skip` leaves out the batch. Other partitions continue.
func TestCorruptBatch(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	s.produce(4000)
	s.untilCurrent()
	p := s.producer(8000, "lz4")
	p.BatchBytes = 16 << 10
	if err := p.Run(s.ctx, s.ledger); err != nil {
		t.Fatal(err)
	}
	from := s.positions()[2]
	at := s.corrupt(2, from)
	if at <= from {
		t.Fatalf("the corrupt batch begins at %d, want one after %d", at, from)
	}
	m := s.start()
	if offset := m.awaitHold(2, "corrupt_batch"); offset != at {
		t.Errorf("held at %d, want %d", offset, at)
	}
	s.awaitPosition(2, at)
	s.told(m, 2, "corrupt_batch", at)
	s.wantHeld(m, 2, at)
	s.check("--held", fmt.Sprintf("2:%d", at))
	to := s.ends(2, "corrupt_batch", at, "skip", s.target(2), fmt.Sprint(at))
	if to <= at+1 {
		t.Errorf("skip goes on at %d: the batch at %d has more than one record", to, at)
	}
	s.checkSets("--lost", fmt.Sprintf("2:%d:%d", at, to)) // verify --kafka would fail at the corrupt batch
	s.wants(0, "verify")
}

// TestPoison produces a record that does not fit the schema. The partition must be held at that record, and the command
// `offsets skip` must leave out this record and no other.
func TestPoison(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	s.produce(4000)
	s.untilCurrent()
	client, err := kgo.NewClient(kgo.SeedBrokers(shared.kafka.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	bad, err := client.ProduceSync(s.ctx, &kgo.Record{Topic: s.name, Partition: 3, Value: []byte("no JSON at all")}).First()
	if err != nil {
		t.Fatal(err)
	}
	s.produce(4000)
	m := s.start()
	if offset := m.awaitHold(3, "poison"); offset != bad.Offset {
		t.Errorf("held at %d, want %d", offset, bad.Offset)
	}
	s.awaitPosition(3, bad.Offset)
	s.told(m, 3, "poison", bad.Offset)
	s.wantHeld(m, 3, bad.Offset)
	s.check("--held", fmt.Sprintf("3:%d", bad.Offset))
	if to := s.ends(3, "poison", bad.Offset, "skip", s.target(3), fmt.Sprint(bad.Offset)); to != bad.Offset+1 {
		t.Errorf("skip goes on at %d, want %d", to, bad.Offset+1)
	}
	s.check()
}

// TestUnknownHistory has a group with committed offsets of another program, and no table. The member must hold the
// partitions until an operator adopts these offsets, and then start exactly there.
func TestUnknownHistory(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	s.produce(4000)
	client, err := kgo.NewClient(kgo.SeedBrokers(shared.kafka.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var offsets kadm.Offsets
	var lost []string
	for partition := range int32(3) { // the fourth partition has no committed offset
		next := 100 * (int64(partition) + 1)
		offsets.AddOffset(s.name, partition, next, -1)
		lost = append(lost, "--lost", fmt.Sprintf("%d:0:%d", partition, next))
	}
	if err := kadm.NewClient(client).CommitAllOffsets(s.ctx, s.name, offsets); err != nil {
		t.Fatal(err)
	}
	m := s.start()
	for partition := range int32(4) {
		m.awaitHold(partition, "unknown_history")
	}
	s.told(m, 0, "unknown_history", -1)
	// A running member continues without a restart once the table has the positions.
	s.wants(0, "offsets", "adopt", s.name, "--from", "group", "--dry-run")
	s.wants(0, "offsets", "adopt", s.name, "--from", "group", "--yes", "--operator", "ada", "--reason", "a test")
	m.await("nothing is held", func(r report) bool { return len(r.Holds) == 0 })
	s.awaitOthers()
	m.drain()
	s.check(lost...)
	s.wants(0, "verify", "--kafka")
}

// target returns the name of a partition in commands, TOPIC:NUMBER.
func (s *scene) target(partition int32) string { return fmt.Sprintf("%s:%d", s.name, partition) }

// listed returns the partition's hold with this reason from the JSON output of `connector holds`, and fails the test if
// there is none.
func (s *scene) listed(partition int32, reason string, args ...string) (h struct {
	Topic, Reason, Command string
	Partition              int32
	Offset                 *int64
	From                   []string
},
) {
	s.t.Helper()
	all := []struct {
		Topic, Reason, Command string
		Partition              int32
		Offset                 *int64
		From                   []string
	}{}
	text := s.wants(1, append([]string{"holds", "-o", "json"}, args...)...)
	if err := json.Unmarshal(answerOf(text), &all); err != nil {
		s.t.Fatalf("holds: %v: %s", err, tail([]byte(text)))
	}
	for _, h := range all {
		if h.Partition == partition && h.Reason == reason {
			return h
		}
	}
	s.t.Fatalf("holds does not name partition %d with %s: %s", partition, reason, text)
	return h
}

// answerOf returns the JSON value in the output of a command. Warnings may come before it.
func answerOf(text string) []byte {
	for at := range text {
		if (text[at] == '[' || text[at] == '{') && (at == 0 || text[at-1] == '\n') {
			return []byte(text[at:])
		}
	}
	return nil
}

// told expects `connector holds` to list a hold at offset at (any offset if at is negative), with a command that ends
// it. Two checks must have found the hold: that of the member, and the command's check of table and Kafka.
func (s *scene) told(m *member, partition int32, reason string, at int64) {
	s.t.Helper()
	own, err := m.health()
	if err != nil {
		s.t.Fatal(err)
	}
	h := s.listed(partition, reason, "--member", m.url)
	if len(h.From) != 2 || h.From[0] != "table and Kafka" || h.From[1] != own.Member || own.Member == "" || h.Command == "" {
		s.t.Errorf("holds says %+v", h)
	}
	if at >= 0 && (h.Offset == nil || *h.Offset != at) {
		s.t.Errorf("holds has offset %v, want %d", h.Offset, at)
	}
}

// ends ends a hold with an offsets command while no member runs, and returns the new position. The hold must be listed
// before and gone afterwards, the operations log must have the command, and a new member must become current.
func (s *scene) ends(partition int32, reason string, at int64, command ...string) (to int64) {
	s.t.Helper()
	if h := s.listed(partition, reason); at >= 0 && (h.Offset == nil || *h.Offset != at) {
		s.t.Errorf("without a member holds says %+v, want it at %d", h, at)
	}
	var plan struct {
		Outcome string
		Moves   []struct {
			Partition int32
			To        int64
		}
	}
	text := s.wants(0, append(append([]string{"offsets"}, command...), "--yes", "--operator", "ada", "--reason", "a test", "-o", "json")...)
	if err := json.Unmarshal(answerOf(text), &plan); err != nil || plan.Outcome != "won" {
		s.t.Fatalf("offsets %v: %v: %s", command, err, text)
	}
	for _, m := range plan.Moves {
		if m.Partition == partition {
			to = m.To
		}
	}
	s.wants(0, "holds")
	s.untilCurrent()
	s.wants(0, "holds")
	if list := s.wants(0, "audit", "list"); !strings.Contains(list, " begins: ") || !strings.Contains(list, "(operation 1)") || strings.Count(list, "offsets "+command[0]) != 2 || strings.Count(list, "ada@") != 2 {
		s.t.Errorf("audit list says %s", list)
	}
	s.wants(0, "audit", "verify")
	return to
}

// corrupt flips a bit in the second record batch after an offset, in the broker's log segment, and returns the batch's
// first offset. The broker sends segments as they are on disk, without a check.
func (s *scene) corrupt(partition int32, after int64) int64 {
	s.t.Helper()
	segments, err := shared.kafka.Segments(s.name, partition)
	if err != nil || len(segments) == 0 {
		s.t.Fatalf("segments of partition %d: %v, %v", partition, segments, err)
	}
	file, err := os.OpenFile(segments[len(segments)-1], os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	var head [12]byte // the base offset and the length of a record batch
	seen := 0
	for at := int64(0); ; {
		if _, err := file.ReadAt(head[:], at); err != nil {
			s.t.Fatalf("find a record batch to corrupt: %v", err)
		}
		base := int64(binary.BigEndian.Uint64(head[:8]))
		end := at + int64(len(head)) + int64(binary.BigEndian.Uint32(head[8:]))
		if base >= after {
			seen++
		}
		if seen == 2 {
			var last [1]byte
			if _, err := file.ReadAt(last[:], end-1); err != nil {
				s.t.Fatal(err)
			}
			last[0] ^= 0x10
			if _, err := file.WriteAt(last[:], end-1); err != nil {
				s.t.Fatal(err)
			}
			return base
		}
		at = end
	}
}
