//go:build lab

package e2e

import (
	"regexp"
	"testing"

	"sluice/test/lab"
)

// TestMaintain compacts and vacuums the table with another program while a member writes to it. No commit of the member
// must be fenced, and each record must be one row.
func TestMaintain(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	end := s.stream(500)
	m := s.start()
	m.awaitReady()
	compacted := regexp.MustCompile(`compacted [1-9]\d* files into`)
	for range 3 {
		versions := len(s.commits())
		s.await("the member has made four more commits", func() (bool, error) {
			commits, err := s.log.Read(s.ctx)
			return len(commits) >= versions+4, err
		})
		out, err := lab.Python(s.ctx, "oracle/maintain.py", "--table", s.tableURL(s.name), "--endpoint", s.minio.Endpoint)
		if err != nil || !compacted.Match(out) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	end()
	s.awaitOthers()
	if n := m.metric("sluice_fenced_total"); n != 0 {
		t.Errorf("%v fences, want none: a compaction must not fence the member", n)
	}
	m.drain()
	// Compaction puts rows of several files into one file, so the order of rows over versions is not checked.
	s.check("--no-order")
}
