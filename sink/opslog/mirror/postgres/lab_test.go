//go:build lab

package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/classify/postgres/postgrestest"
	"sluice/reliability"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
	"sluice/sink/opslog/mirror"
)

func open(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{URL: url, Pipeline: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// written returns the first n entries of a log.
func written(t *testing.T, n int, reason string) (all []opslog.Entry) {
	t.Helper()
	log := opslog.Open(objstore.NewMem(), "orders", opslog.Options{Guard: reliability.NewGuard("operations log", reliability.Config{
		Backoff: reliability.Backoff{Initial: time.Second, Max: time.Second}, Failures: 5, OpenFor: time.Minute, Successes: 1,
	}, slog.New(slog.DiscardHandler), nil)})
	for range n {
		e, err := log.Append(t.Context(), opslog.Operation{Operator: "ada", Host: "desk", Reason: reason, Body: opslog.Pause{Targets: []opslog.Target{opslog.Topic("größe")}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestStoreLab: a copy has every field of its entry. Copies that would repeat an entry, leave a gap or follow another
// entry are refused with ErrMoved.
func TestStoreLab(t *testing.T) {
	url, _ := postgrestest.Schema(t)
	s := open(t, url)
	all := written(t, 5, "broker upgrade\x00 größe 🦀")
	if h, err := s.Newest(t.Context(), 9); err != nil || h != (opslog.Head{}) {
		t.Fatalf("%v, %v", h, err)
	}
	if err := s.Add(t.Context(), opslog.Head{}, all[:2]); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"again": s.Add(t.Context(), opslog.Head{}, all[:2]), "after a gap": s.Add(t.Context(), all[2].Head(), all[3:]),
		"after another entry": s.Add(t.Context(), opslog.Head{Seq: 2, Hash: all[0].Hash()}, all[2:]),
	} {
		if !errors.Is(err, mirror.ErrMoved) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := open(t, url).Add(t.Context(), all[1].Head(), all[2:]); err != nil {
		t.Fatal(err)
	}
	for upTo, want := range map[int64]opslog.Head{0: {}, 1: all[0].Head(), 4: all[3].Head(), 99: all[4].Head()} {
		if h, err := s.Newest(t.Context(), upTo); err != nil || h != want {
			t.Errorf("up to %d: %v, %v", upTo, h, err)
		}
	}
	var count int
	var seqs, row string
	postgrestest.Ask(t, url, "SELECT count(*), string_agg(seq::text, ' ' ORDER BY copied_at, seq) FROM audit_log", &count, &seqs)
	if count != 5 || seqs != "1 2 3 4 5" {
		t.Errorf("%d rows: %s", count, seqs)
	}
	postgrestest.Ask(t, url, `SELECT concat_ws('|', pipeline, seq, id, prev, hash, extract(epoch FROM at)::numeric = `+fmt.Sprintf("%d.%06d", all[1].At.Unix(), all[1].At.Nanosecond()/1000)+
		`, operator, host, kind, reason, body->'targets'->0->>'topic') FROM audit_log WHERE seq = 2`, &row)
	if want := strings.Join([]string{"orders", "2", all[1].ID, all[0].Hash(), all[1].Hash(), "t", "ada", "desk", "pause", "broker upgrade\uFFFD größe 🦀", "größe"}, "|"); row != want {
		t.Errorf("row %s\nwant %s", row, want)
	}
}

// TestMembersAtOnceLab: if several members copy at the same time, each entry is copied once, and each copy names the
// hash of the copy before it.
func TestMembersAtOnceLab(t *testing.T) {
	url, _ := postgrestest.Schema(t)
	all := written(t, 40, "a test")
	var members sync.WaitGroup
	for range 4 {
		s := open(t, url)
		members.Go(func() {
			for {
				h, err := s.Newest(t.Context(), 40)
				if err != nil {
					t.Error(err)
					return
				}
				if h.Seq == 40 {
					return
				}
				if err := s.Add(t.Context(), h, all[h.Seq:min(h.Seq+3, 40)]); err != nil && !errors.Is(err, mirror.ErrMoved) {
					t.Error(err)
					return
				}
			}
		})
	}
	members.Wait()
	var count, links int
	postgrestest.Ask(t, url, "SELECT count(*), count(*) FILTER (WHERE a.prev = (SELECT hash FROM audit_log b WHERE b.seq = a.seq - 1)) FROM audit_log a", &count, &links)
	if count != 40 || links != 39 {
		t.Errorf("%d rows, %d links", count, links)
	}
}

// TestWipedLab: if the table was dropped or emptied, the next call finds no copies and returns no error, and copies can
// be added again.
func TestWipedLab(t *testing.T) {
	url, _ := postgrestest.Schema(t)
	s := open(t, url)
	all := written(t, 2, "a test")
	for _, wipe := range []string{"DROP TABLE audit_log", "DROP TABLE audit_log, audit_log_version", "TRUNCATE audit_log"} {
		if err := s.Add(t.Context(), opslog.Head{}, all); err != nil {
			t.Fatalf("before %s: %v", wipe, err)
		}
		postgrestest.Ask(t, url, wipe)
		if h, err := s.Newest(t.Context(), 9); err != nil || h != (opslog.Head{}) {
			t.Errorf("%s: %v, %v", wipe, h, err)
		}
	}
}

// TestRightsLab: a database user with the rights to select and insert can add copies and cannot change them. Without
// these rights, the error names the GRANT statement. If the table audit_log is of another program, the error says so.
func TestRightsLab(t *testing.T) {
	rich, schema := postgrestest.Schema(t)
	user := "poor_" + schema
	postgrestest.Ask(t, rich, "CREATE ROLE "+user+" LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA "+schema+" TO "+user)
	u, err := url.Parse(rich)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "x")
	s, all := open(t, u.String()), written(t, 2, "a test")
	grant := `GRANT SELECT, INSERT ON audit_log TO "` + user + `"`
	if _, err := s.Newest(t.Context(), 1); err == nil || !strings.Contains(err.Error(), grant) || !strings.Contains(err.Error(), "connector check") {
		t.Errorf("%v", err)
	}
	if _, err := open(t, rich).Newest(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Newest(t.Context(), 1); err == nil || !strings.Contains(err.Error(), grant) {
		t.Errorf("%v", err)
	}
	postgrestest.Ask(t, rich, grant)
	if err := s.Add(t.Context(), opslog.Head{}, all); err != nil {
		t.Error(err)
	}
	if _, err := s.pool.Exec(t.Context(), "UPDATE audit_log SET reason = 'none'"); err == nil {
		t.Error("it may change copies")
	}

	foreign, _ := postgrestest.Schema(t)
	postgrestest.Ask(t, foreign, "CREATE TABLE audit_log (id INT)")
	if _, err := open(t, foreign).Newest(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "belongs to another program") {
		t.Errorf("%v", err)
	}
}
