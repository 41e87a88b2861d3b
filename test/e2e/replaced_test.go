//go:build lab && linux

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

// replace does what CREATE OR REPLACE TABLE of another engine does: it commits a version with another table id and
// without files. The txns stay in the log.
func (s *scene) replace() {
	s.t.Helper()
	key := func(version int) string { return fmt.Sprintf("%s/_delta_log/%020d.json", s.log.Table, version) }
	first, err := shared.bucket.Get(s.ctx, key(0))
	if err != nil {
		s.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(first)) {
		var action struct {
			Metadata map[string]any `json:"metaData"`
		}
		if err := json.Unmarshal([]byte(line), &action); err != nil {
			s.t.Fatal(err)
		}
		if action.Metadata == nil {
			continue
		}
		action.Metadata["id"] = "5a8d42de-0000-4000-8000-000000000001"
		text, err := json.Marshal(action)
		if err != nil {
			s.t.Fatal(err)
		}
		lines = append(lines, string(text))
	}
	commits := s.commits()
	for _, c := range commits {
		for _, a := range c.Adds {
			lines = append(lines, fmt.Sprintf(`{"remove":{"path":%q,"deletionTimestamp":1,"dataChange":true}}`, a.Path))
		}
	}
	lines = append(lines, `{"commitInfo":{"timestamp":1,"operation":"CREATE OR REPLACE TABLE"}}`)
	if err := shared.bucket.Create(s.ctx, key(len(commits)), []byte(strings.Join(lines, "\n")+"\n")); err != nil {
		s.t.Fatal(err)
	}
}

// TestTableReplaced replaces the table. Members must write nothing to the new table before an operator accepts it.
func TestTableReplaced(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	s.produce(4000)
	s.untilCurrent()
	s.replace()
	s.produce(1000)
	before := len(s.commits())
	m := s.start()
	for partition := range int32(4) {
		m.awaitHold(partition, "table_replaced")
	}
	s.told(m, 2, "table_replaced", -1)
	m.drain()
	s.wants(1, "run", "--until-current")
	if n := len(s.commits()); n != before {
		t.Errorf("the table has %d versions, want %d as before", n, before)
	}
	s.ends(2, "table_replaced", -1, "start", s.name, "--at", "earliest")
	// The log has each record twice: in the old table and, read again, in the new one. So the order of rows over all
	// versions is not checked.
	s.checkSets("--no-order")
}

// TestClusterChanged connects a member to another cluster that has a topic of the same name. All partitions must be
// held and add no row until `offsets start` accepts the cluster. Then its records must become rows.
func TestClusterChanged(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	s.produce(4000)
	s.untilCurrent()
	other, err := lab.StartKafka(s.ctx, lab.KafkaOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := other.CreateTopic(s.ctx, s.name, 4, nil); err != nil {
		t.Fatal(err)
	}
	first := s.positions()
	s.addrs = []string{other.Addr}
	moved := s.newLedger("moved.csv")
	if err := s.producer(3000, "zstd").Run(s.ctx, moved); err != nil {
		t.Fatal(err)
	}
	m := s.start()
	for partition := range int32(4) {
		m.awaitHold(partition, "cluster_changed")
	}
	s.told(m, 1, "cluster_changed", -1)
	m.drain()
	s.wants(1, "run", "--until-current")
	for partition, position := range s.positions() {
		if position != first[partition] {
			t.Errorf("partition %d moved from %d to %d", partition, first[partition], position)
		}
	}
	s.checkSets()
	s.ends(1, "cluster_changed", -1, "start", s.name)
	if rows, want := tablelog.Rows(s.commits()), s.ledger.Len()+moved.Len(); rows != want {
		t.Errorf("the table has %d rows, want the %d of both clusters", rows, want)
	}
}

// TestOversize has a record that is larger than a member may load into memory. Its partition must be held at the record
// until `offsets skip` leaves out the record. All other records must become rows.
func TestOversize(t *testing.T) {
	t.Parallel()
	s := newSceneOf(t, 4)
	s.produce(4000)
	s.untilCurrent()
	note := make([]byte, 11<<20)
	for i := range note {
		note[i] = byte('a' + s.random.IntN(26)) // text of random letters compresses to no less than half of its size
	}
	client := s.client()
	large, err := client.ProduceSync(s.ctx, &kgo.Record{Topic: s.name, Partition: 2, Value: fmt.Appendf(nil, `{"order_id":"x","coupon":%q}`, note)}).First()
	if err != nil {
		t.Fatal(err)
	}
	s.produce(4000)
	little := func(c *settings) { c.memory = "128MiB" }
	m := s.start(little)
	if offset := m.awaitHold(2, "oversize"); offset != large.Offset {
		t.Errorf("held at %d, want %d", offset, large.Offset)
	}
	s.awaitPosition(2, large.Offset)
	if h := s.listed(2, "oversize", "--member", m.url); !strings.Contains(h.Command, "skip") {
		t.Errorf("holds says %+v", h)
	}
	s.awaitOthers(2)
	path, _ := s.config(little)
	code, text := s.command("offsets", "skip", fmt.Sprintf("%s@%d", s.target(2), large.Offset), "--batch", "--yes", "--operator", "ada", "--reason", "a test", "--config", path)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	s.awaitOthers() // waits for all partitions, because the hold ends without an operator
	m.drain()
	s.wants(0, "holds")
	s.checkSets()
}
