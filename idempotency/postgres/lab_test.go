//go:build lab

package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/classify"
	"sluice/classify/postgres/postgrestest"
	"sluice/idempotency"
	"sluice/idempotency/storetest"
	"sluice/reliability"
	"sluice/test/lab"
)

// own creates a schema for one test and returns its URL.
func own(t *testing.T) string {
	t.Helper()
	url, _ := postgrestest.Schema(t)
	return url
}

func guard() *reliability.Guard {
	return reliability.NewGuard("fingerprints", reliability.Config{
		Backoff: reliability.Backoff{Initial: 10 * time.Millisecond, Max: 50 * time.Millisecond}, Failures: 5, OpenFor: 100 * time.Millisecond, Successes: 1,
	}, slog.New(slog.DiscardHandler), nil)
}

func store(t *testing.T, url string, change ...func(*pgxpool.Config)) *Store {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(config)
	}
	s, err := open(t.Context(), config, guard().Do)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestStoreLab(t *testing.T) {
	storetest.Run(t, func(t *testing.T) idempotency.Store { return store(t, own(t)) })
}

// TestTablesLab: if many members create the tables at the same time, the tables are created once, with all indexes.
func TestTablesLab(t *testing.T) {
	url := own(t)
	var members sync.WaitGroup
	for i := range 6 {
		s := store(t, url)
		members.Go(func() {
			sc := scope
			sc.Partition.ID = int32(i)
			if err := s.Remember(t.Context(), sc, 0, 10, rows(0, 10)); err != nil {
				t.Error(err)
			}
		})
	}
	members.Wait()
	s := store(t, url)
	if err := errors.Join(s.Sweep(t.Context(), scope, 1<<60), s.Reset(t.Context(), scope)); err != nil {
		t.Error(err)
	}
	var n int64
	var indexes, columns string
	postgrestest.Ask(t, url, "SELECT count(*) FROM processed_events", &n)
	postgrestest.Ask(t, url, "SELECT string_agg(indexdef, E'\n') FROM pg_indexes WHERE tablename = 'processed_events' AND schemaname = current_schema()", &indexes)
	postgrestest.Ask(t, url, `SELECT string_agg(column_name || ' ' || data_type || ' ' || coalesce(column_default, '-'), ', ' ORDER BY ordinal_position)
		FROM information_schema.columns WHERE table_name = 'processed_events' AND table_schema = current_schema()`, &columns)
	if n != 50 { // ten rows in each of five scopes; the sixth was reset
		t.Errorf("%d rows", n)
	}
	for _, want := range []string{"UNIQUE INDEX processed_events_pkey", "(fingerprint)", `INDEX idx_processed_events_offset`, `("offset")`, "(event_id) WHERE"} {
		if !strings.Contains(indexes, want) {
			t.Errorf("no %s in:\n%s", want, indexes)
		}
	}
	if want := "event_id text -, offset bigint -, processed_at timestamp with time zone now(), fingerprint text -, scope bigint -, recorded_at bigint -"; columns != want {
		t.Errorf("columns %s, want %s", columns, want)
	}
	// A user who may only use the tables, not create them, can use the store.
	plain, user := poor(t, url)
	if err := store(t, plain).Remember(t.Context(), scope, 0, 1, rows(0, 1)); err != nil {
		t.Error(err)
	}
	_, err := store(t, strings.Replace(plain, user+":x@", user+":y@", 1)).Through(t.Context(), scope)
	refused(t, err)
	_, err = store(t, strings.Replace(plain, "search_path", "search_path=pg_catalog&x.y", 1)).Through(t.Context(), scope)
	refused(t, err)
}

// refused fails the test unless err has class Fatal and contains all texts.
func refused(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil || classify.Of(err) != classify.Fatal || strings.Contains(err.Error(), "password=") {
		t.Errorf("got %v, want a refusal", err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in: %v", text, err)
		}
	}
}

// faulty is a connection to PostgreSQL. For each COMMIT, its plan says whether the connection breaks before it, breaks
// after it, or passes it.
type faulty struct {
	net.Conn
	plan *plan
}

// plan says what happens to the next commits, in order: 'b' breaks the connection before the commit is sent, 'a' breaks
// it after the commit took effect, 'p' passes the commit.
type plan struct {
	mu    sync.Mutex
	steps string
	done  int
}

func (p *plan) next() byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == len(p.steps) {
		return 'p'
	}
	p.done++
	return p.steps[p.done-1]
}

func (f *faulty) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte("commit\x00")) {
		return f.Conn.Write(b)
	}
	switch f.plan.next() {
	case 'b':
		_ = f.Close()
		return 0, errors.New("broken before")
	case 'a':
		n, err := f.Conn.Write(b)
		if err == nil {
			_, err = f.Read(make([]byte, 1<<10)) // reads the response, which the client then does not get
		}
		_ = f.Close()
		return n, err
	}
	return f.Conn.Write(b)
}

func (p *plan) dial(c *pgxpool.Config) {
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &faulty{conn, p}, err
	}
}

// TestLostAnswersLab: connections break before or after commits, in any order. Remember succeeds nevertheless, and each
// row is stored once.
func TestLostAnswersLab(t *testing.T) {
	for _, steps := range []string{"b", "a", "ba", "ab", "bb", "aa"} {
		p := &plan{}
		url := own(t)
		s := store(t, url, p.dial)
		if err := s.Remember(t.Context(), scope, 0, 5, rows(0, 5)); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		p.steps = steps
		p.mu.Unlock()
		if err := s.Remember(t.Context(), scope, 5, 9, rows(5, 9)); err != nil {
			t.Errorf("%s: %v", steps, err)
		}
		whole(t, s, 9)
		if err := s.Remember(t.Context(), scope, 5, 9, rows(5, 9)); !errors.Is(err, idempotency.ErrMoved) {
			t.Errorf("%s: once more: %v", steps, err)
		}
	}
}

// whole fails the test unless all rows up to next are stored.
func whole(t *testing.T, s *Store, next int64) {
	t.Helper()
	through, err := s.Through(t.Context(), scope)
	if err != nil || through != next {
		t.Errorf("through is %d, %v; want %d", through, err, next)
	}
	seen, err := s.Seen(t.Context(), scope, rows(0, next+3))
	if err != nil || int64(len(seen)) != next {
		t.Errorf("%d are remembered, %v; want %d", len(seen), err, next)
	}
	for o := range next {
		if at, ok := seen[fingerprint(uint64(o))]; !ok || at != o*time.Hour.Milliseconds() {
			t.Errorf("row %d is remembered as of %d, %v", o, at, ok)
		}
	}
}

// TestFaultsLab: while the server is down or killed, a call waits and succeeds once the server is back. While another
// transaction locks the scope, a call ends with its ctx. After the tables were dropped, Through is 0, and the store can
// be filled again from offset 0 on.
func TestFaultsLab(t *testing.T) {
	pg, err := lab.StartPostgres(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	}()
	s, breaker := store(t, pg.URL), guard()
	s.retry = breaker.Do
	if err := s.Remember(t.Context(), scope, 0, 5, rows(0, 5)); err != nil {
		t.Fatal(err)
	}

	// Down, by order or by a crash: callers wait, and continue when the server is back.
	for i, down := range []func() error{pg.Stopped, pg.Kill} {
		if err := down(); err != nil {
			t.Fatal(err)
		}
		// The session of a killed server may answer once more, so wait until a request fails.
		if err := lab.Until(t.Context(), func() (bool, error) { return s.pool.Ping(t.Context()) != nil, nil }); err != nil {
			t.Fatal(err)
		}
		from := int64(5 + i)
		answered := make(chan error, 1)
		go func() { answered <- s.Remember(t.Context(), scope, from, from+1, rows(from, from+1)) }()
		if err := lab.Until(t.Context(), func() (bool, error) { return breaker.Status().Open, nil }); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-answered:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		if err := pg.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		whole(t, s, from+1)
	}

	// Slow: another transaction holds the scope. A waiting call ends with its ctx.
	conn, err := pgx.Connect(t.Context(), pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; SELECT * FROM processed_scopes FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Remember(ctx, scope, 7, 8, rows(7, 8)); err == nil || ctx.Err() == nil {
		t.Errorf("a locked scope: %v", err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	whole(t, s, 7)

	// Wiped: Through is 0, so the caller fills the store again, and the store creates the tables again.
	postgrestest.Ask(t, pg.URL, "DROP TABLE processed_events, processed_scopes")
	if through, err := s.Through(t.Context(), scope); err != nil || through != 0 {
		t.Errorf("through is %d, %v after the tables were dropped", through, err)
	}
	if err := s.Remember(t.Context(), scope, 7, 8, rows(7, 8)); !errors.Is(err, idempotency.ErrMoved) {
		t.Errorf("remembered behind a gap: %v", err)
	}
	if err := s.Remember(t.Context(), scope, 0, 8, rows(0, 8)); err != nil {
		t.Error(err)
	}
	whole(t, s, 8)
}

func BenchmarkLab(b *testing.B) {
	config, err := pgxpool.ParseConfig(os.Getenv("SLUICE_TEST_POSTGRES"))
	if err != nil {
		b.Fatal(err)
	}
	s, err := open(b.Context(), config, guard().Do)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const n = 100_000
	sc := scope
	sc.TableID = fmt.Sprint(time.Now().UnixNano())
	at := int64(0)
	b.Run("remember", func(b *testing.B) {
		for b.Loop() {
			if err := s.Remember(b.Context(), sc, at, at+n, rows(at, at+n)); err != nil {
				b.Fatal(err)
			}
			at += n
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/row")
	})
	b.Run("seen", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Seen(b.Context(), sc, rows(0, n)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/row")
	})
}
