//go:build lab

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/test/lab"
)

// copied is an entry of the operations log, and its copy.
type copied struct {
	Seq                              int64
	ID, Prev, Hash, Operator, Reason string
}

// TestMirror copies the operations log to Postgres while the database is killed, while no member runs, and with two
// members. Operators and records never wait for it, and in the end each entry has one copy that is the same. Then a copy
// is changed, and nothing is copied any more.
func TestMirror(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	server, err := lab.StartPostgres(s.ctx, s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	file := filepath.Join(s.dir, "mirror")
	if err := os.WriteFile(file, []byte(server.URL+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mirrored := func(c *settings) { c.ops += fmt.Sprintf(", mirror_url_file: %q", file) }
	operations := 0
	operate := func(command string) {
		t.Helper()
		operations++
		s.wants(0, command, s.name, "--operator", "ada", "--reason", fmt.Sprint("number ", operations), "--yes")
	}
	copies := func() (n int, err error) {
		return n, ask(s.ctx, server.URL, "SELECT count(*) FROM audit_log", &n)
	}
	awaitCopies := func(when string) {
		t.Helper()
		s.await(when+", every operation has a copy", func() (bool, error) {
			n, err := copies()
			if n > operations {
				return false, fmt.Errorf("%d copies of %d operations", n, operations)
			}
			return n == operations, err
		})
	}
	a := s.start(mirrored)
	a.awaitReady()
	operate("pause")
	awaitCopies("with one member")
	operate("resume")
	awaitCopies("with one member")

	// Operations and records do not wait for the database.
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	operate("pause")
	operate("resume")
	s.produce(1000)
	s.awaitRows(1000)
	s.await("the member says that it cannot copy", func() (bool, error) {
		failed, err := a.logged("failed to copy the operations log to ops.mirror_url_file; records and operations continue")
		return failed && a.metric("sluice_audit_mirror_behind_entries") == 2, err
	})
	if err := server.Start(s.ctx); err != nil {
		t.Fatal(err)
	}
	awaitCopies("after the outage")

	// The entry of a command has no copy before a member runs again. Then two members copy.
	a.kill()
	operate("pause")
	if n, err := copies(); err != nil || n != operations-1 {
		t.Errorf("%d copies without a member, %v", n, err)
	}
	b, c := s.start(mirrored), s.start(mirrored)
	b.awaitReady()
	c.awaitReady()
	operate("resume")
	awaitCopies("with two members")

	var log struct{ Entries []copied }
	text := s.wants(0, "audit", "list", "--output", "json")
	if err := json.Unmarshal([]byte(text)[max(0, strings.Index(text, "{\n")):], &log); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var found []byte
	if err := ask(s.ctx, server.URL, "SELECT json_agg(row_to_json(a) ORDER BY seq) FROM audit_log a WHERE pipeline = '"+s.name+"'", &found); err != nil {
		t.Fatal(err)
	}
	var rows []copied
	if err := json.NewDecoder(bytes.NewReader(found)).Decode(&rows); err != nil {
		t.Fatalf("%v: %s", err, found)
	}
	if d := cmp.Diff(log.Entries, rows); d != "" || len(rows) != operations {
		t.Errorf("%d copies (-log +copies):\n%s", len(rows), d)
	}
	newest := rows[len(rows)-1]
	s.wants(0, "audit", "verify", "--head", fmt.Sprintf("%d:%s", newest.Seq, newest.Hash))

	// A copy that is not the entry of the log is evidence: it stays as it is.
	if err := ask(s.ctx, server.URL, fmt.Sprintf("UPDATE audit_log SET hash = repeat('0', 64) WHERE seq = %d", newest.Seq)); err != nil {
		t.Fatal(err)
	}
	operate("pause")
	s.await("a member says that a copy differs", func() (bool, error) {
		const differs = "is not the one in the operations log"
		byB, err1 := b.logged(differs)
		byC, err2 := c.logged(differs)
		return byB || byC, errors.Join(err1, err2)
	})
	if n, err := copies(); err != nil || n != operations-1 {
		t.Errorf("%d copies after one was changed, %v", n, err)
	}
	operate("resume")
	s.produce(1000)
	s.awaitRows(2000)
	s.check("--readers", "polars")
}

// logged reports whether the member's log has a text.
func (m *member) logged(text string) (bool, error) {
	log, err := os.ReadFile(m.Log)
	return bytes.Contains(log, []byte(text)), err
}
