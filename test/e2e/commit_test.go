//go:build lab

package e2e

import (
	"testing"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

// TestCommitOfUnknownOutcome breaks the response, or the request, of a member's first three commits: the creation of
// the table, the initial commit and the first commit with rows. Each commit must take effect exactly once.
func TestCommitOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]lab.Action{
		"answer dropped":     lab.DropAnswer,
		"request dropped":    lab.DropRequest,
		"409":                lab.Answer(409, false),
		"409 after applying": lab.Answer(409, true),
		"500":                lab.Answer(500, false),
		"500 after applying": lab.Answer(500, true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 4)
			s.produce(5000)
			proxy := s.proxy()
			fault := proxy.Break(lab.CommitPut, 3, action)
			path, _ := s.config(through(proxy))
			if code, text := s.command("run", "--until-current", "--config", path); code != 0 {
				t.Fatalf("exit code %d: %s", code, tail([]byte(text)))
			}
			if left := proxy.Left(fault); left != 0 {
				t.Errorf("%d faults hit no commit", left)
			}
			s.wantUniqueCommits()
			s.check("--readers", "polars")
		})
	}
}

// wantUniqueCommits fails the test if two versions of the log have the same transaction id or the same data file, or if
// the log counts more or fewer rows than the ledger.
func (s *scene) wantUniqueCommits() {
	s.t.Helper()
	commits := s.commits()
	ids, files := make(map[string]int64), make(map[string]int64)
	for _, c := range commits {
		if other, ok := ids[c.Info.TxnID]; ok && c.Info.TxnID != "" {
			s.t.Errorf("versions %d and %d have the same transaction id", other, c.Version)
		}
		ids[c.Info.TxnID] = c.Version
		for _, add := range c.Adds {
			if other, ok := files[add.Path]; ok {
				s.t.Errorf("versions %d and %d add the same file", other, c.Version)
			}
			files[add.Path] = c.Version
		}
	}
	if rows := tablelog.Rows(commits); rows != s.ledger.Len() {
		s.t.Errorf("the log counts %d rows, the ledger %d", rows, s.ledger.Len())
	}
}
