//go:build lab

package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"sluice/test/tablelog"
)

// operation returns the object key of entry seq of the operations log.
func (s *scene) operation(seq int) string {
	return fmt.Sprintf("%s/_sluice/%s/ops/%020d.json", s.name, s.name, seq)
}

// TestPauseWhileRunning pauses a partition while two members run and records arrive. Its position must not move, even
// after a kill -9 of its owner, while other partitions continue. After resume the table must have every record. Then
// the test changes an entry of the operations log, which audit verify and the member must report.
func TestPauseWhileRunning(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	end := s.stream(500)
	a, b := s.start(), s.start()
	a.awaitReady()
	b.awaitReady()
	s.awaitRows(1000)

	topic := s.name
	out := s.wants(0, "pause", topic+":1", "--operator", "ada", "--reason", "disk of broker 2", "--yes")
	if !strings.Contains(out, "paused "+topic+":1 (operation 1)") {
		t.Errorf("pause says %q", out)
	}
	// The member that owns the partition reports the hold.
	var owner *member
	s.await("partition 1 is paused", func() (bool, error) {
		for _, m := range []*member{a, b} {
			r, err := m.health()
			if err != nil {
				return false, err
			}
			for _, h := range r.Holds {
				if h.Partition == 1 && h.Reason == "paused" && strings.Contains(h.Detail, "ada paused "+topic+":1: disk of broker 2") {
					owner = m
				}
			}
		}
		return owner != nil, nil
	})
	s.await("the records read before the pause are committed", func() (bool, error) {
		r, err := owner.health()
		for _, h := range r.Holds {
			if h.Partition == 1 && h.Offset == s.positions()[1] {
				return true, err
			}
		}
		return false, err
	})
	at := s.positions()[1]
	rows := tablelog.Rows(s.commits())
	s.awaitRows(rows + 2000) // the other partitions continue
	owner.kill()
	c := s.start()
	c.awaitReady()
	s.awaitRows(rows + 4000)
	end()
	s.awaitOthers(1)
	if now := s.positions()[1]; now != at {
		t.Errorf("the paused partition moved from %d to %d", at, now)
	}
	if text := s.wants(1, "run", "--until-current"); !strings.Contains(text, `"reason":"paused"`) {
		t.Errorf("a run until current does not name the pause: %s", tail([]byte(text)))
	}
	if metric := c.metric("sluice_operations_log_seq"); metric != 1 {
		t.Errorf("the member's last operation is %v, want 1", metric)
	}

	s.wants(0, "resume", topic, "--operator", "eva", "--reason", "replaced", "--yes")
	s.awaitOthers()
	c.await("nothing is held", func(r report) bool { return len(r.Holds) == 0 })
	s.check()

	// audit verify accepts the operations log until an entry changes.
	list := s.wants(0, "audit", "list")
	head := strings.TrimSpace(list[strings.LastIndex(list, "head ")+len("head "):])
	s.wants(0, "audit", "verify", "--head", head)
	good, err := shared.bucket.Get(s.ctx, s.operation(2))
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Replace(good, []byte("eva"), []byte("bob"), 1)
	if err := shared.bucket.Overwrite(s.ctx, s.operation(2), bad); err != nil {
		t.Fatal(err)
	}
	if text := s.wants(1, "audit", "verify"); !strings.Contains(text, "\nseq 2: its bytes are not") {
		t.Errorf("audit verify says %q", text)
	}
	s.await("the member reports the broken operations log", func() (bool, error) { return c.metric("sluice_operations_log_broken") == 1, nil })
	if err := shared.bucket.Overwrite(s.ctx, s.operation(2), good); err != nil {
		t.Fatal(err)
	}
	s.wants(0, "audit", "verify", "--head", head)
	s.await("the member accepts the restored operations log", func() (bool, error) { return c.metric("sluice_operations_log_broken") == 0, nil })
}
