//go:build lab

package e2e

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"sluice/test/tablelog"
)

// positions returns the table's positions.
func (s *scene) positions() map[int32]int64 {
	s.t.Helper()
	return tablelog.Positions(s.commits())
}

// awaitOthers waits until every partition but the held ones has come to its last committed record.
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

// wantHeld runs until everything but one partition is current, and expects the hold to say so to every command.
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

// Kafka deleted records before they were read.
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
	s.wantHeld(m, 0, at)
	s.check("--held", fmt.Sprintf("0:%d", at))
}

// The position lies beyond the log's end: a commit that nobody should have made.
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
	s.wantHeld(m, 1, at+100_000)
	s.checkSets("--held", fmt.Sprintf("1:%d", at))
	// No commit's range leads to the forged position: verify names it.
	if text := s.wants(1, "verify"); !strings.Contains(text, fmt.Sprint(at+100_000)) {
		t.Errorf("verify does not name the forged position: %s", text)
	}
}

// The topic was deleted and created again.
func TestTopicRecreated(t *testing.T) {
	t.Parallel()
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
	// Nothing of the new topic may reach the table, so it has a ledger of its own, which is never compared.
	if err := s.producer(8000, "lz4").Run(s.ctx, s.newLedger("recreated.csv")); err != nil {
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
}

// The broker's disk has a record batch with flipped bits.
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
	s.wantHeld(m, 2, at)
	s.check("--held", fmt.Sprintf("2:%d", at))
}

// corrupt flips a bit in the second record batch after an offset, in the broker's log segment, and returns its first
// offset. The broker sends segments as they lie on the disk.
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
	var head [12]byte // base offset and length of a record batch
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
