//go:build lab

package postgres

import (
	"context"
	_ "embed"
	"iter"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"sluice/classify"
	"sluice/classify/postgres"
	"sluice/classify/postgres/postgrestest"
	"sluice/idempotency"
)

//go:embed testdata/schema_1.sql
var firstSchema string

// withIDs yields the entries of [rows] from offset from on, one for each of ids, with that id.
func withIDs(from int64, ids ...string) iter.Seq[idempotency.Entry] {
	return func(yield func(idempotency.Entry) bool) {
		for e := range rows(from, from+int64(len(ids))) {
			if e.ID = ids[e.Offset-from]; !yield(e) {
				return
			}
		}
	}
}

func mustRemember(t *testing.T, s *Store, sc idempotency.Scope, from, next int64, entries iter.Seq[idempotency.Entry]) {
	t.Helper()
	if err := s.Remember(t.Context(), sc, from, next, entries); err != nil {
		t.Fatal(err)
	}
}

// eventID returns the event_id in the row of an offset, "null" if it is NULL.
func eventID(t *testing.T, url string, sc idempotency.Scope, offset int64) (id string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), `SELECT coalesce(event_id, 'null') FROM processed_events
		WHERE "offset" = $1 AND scope = (SELECT id FROM processed_scopes WHERE scope = $2)`, offset, sc.String()).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestEventIDLab: a query by the producer's id finds the record in any partition, and uses an index. Duplicates are
// still found by partition and fingerprint.
func TestEventIDLab(t *testing.T) {
	url := own(t)
	s, other := store(t, url), scope
	other.Partition.ID++
	mustRemember(t, s, scope, 0, 3, withIDs(0, "evt-1", "Ä'\"\\ {}", ""))
	mustRemember(t, s, other, 0, 1, withIDs(0, "evt-1"))

	var found bool
	var offset int64
	postgrestest.Ask(t, url, `SELECT EXISTS (SELECT 1 FROM processed_events WHERE event_id = 'evt-1')`, &found)
	postgrestest.Ask(t, url, `SELECT "offset" FROM processed_events WHERE event_id = 'evt-1' AND processed_at <= now() LIMIT 1`, &offset)
	if !found || offset != 0 {
		t.Errorf("found %v at offset %d", found, offset)
	}
	var n int
	if postgrestest.Ask(t, url, `SELECT count(*) FROM processed_events WHERE event_id = 'evt-1'`, &n); n != 2 {
		t.Errorf("%d rows of evt-1, want those of two partitions", n)
	}
	if got := eventID(t, url, scope, 1); got != "Ä'\"\\ {}" {
		t.Errorf("the id of row 1 is %q", got)
	}
	if got := eventID(t, url, scope, 2); !strings.HasSuffix(got, "/"+fingerprint(2).String()) {
		t.Errorf("the id of a row without one is %q", got)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{
		"SET enable_seqscan = off", "SET plan_cache_mode = force_generic_plan",
		"PREPARE is_processed(text) AS SELECT EXISTS (SELECT 1 FROM processed_events WHERE event_id = $1)",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := conn.Query(t.Context(), "EXPLAIN EXECUTE is_processed('evt-1')")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(plan, pgx.RowTo[string])
	if text := strings.Join(lines, "\n"); err != nil || !strings.Contains(text, "idx_processed_events_event_id") {
		t.Errorf("the query uses no index, %v:\n%s", err, text)
	}

	whole(t, s, 3)
	if seen, err := s.Seen(t.Context(), other, rows(0, 3)); err != nil || len(seen) != 1 {
		t.Errorf("the other partition remembers %v, %v", seen, err)
	}
}

// TestEventIDStaysLab: a stored id stays if its row is added again without an id, as from a table that has no ids. A
// newer row with the same fingerprint and another id replaces it.
func TestEventIDStaysLab(t *testing.T) {
	url := own(t)
	s := store(t, url)
	again := func(offset int64, id string) iter.Seq[idempotency.Entry] {
		return func(yield func(idempotency.Entry) bool) {
			yield(idempotency.Entry{Fingerprint: fingerprint(0), Offset: offset, At: offset, ID: id})
		}
	}
	for i, step := range []struct{ id, want string }{
		{"", "1/" + fingerprint(0).String()}, {"evt-1", "evt-1"}, {"", "evt-1"}, {"evt-2", "evt-2"},
	} {
		offset := int64(i + 1)
		mustRemember(t, s, scope, int64(i), offset, again(offset, step.id))
		if got := eventID(t, url, scope, offset); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// TestFirstSchemaLab: a store keeps the rows in tables of the first version. After that, a member of the first version
// fails with an error, instead of finding no fingerprints.
func TestFirstSchemaLab(t *testing.T) {
	url := own(t)
	old(t, url, firstSchema)
	s := store(t, url)
	whole(t, s, 5)
	mustRemember(t, s, scope, 5, 7, withIDs(5, "evt-5", "evt-6"))
	whole(t, s, 7)
	if before, now := eventID(t, url, scope, 4), eventID(t, url, scope, 5); before != "null" || now != "evt-5" {
		t.Errorf("event_id %s and %s, want null and evt-5", before, now)
	}

	// At its start, a member of the first version runs the script that creates its tables. Its first query then fails
	// with an error of class fatal.
	postgrestest.Ask(t, url, firstSchema)
	_, err := s.pool.Exec(t.Context(), "SELECT through FROM processed_scopes WHERE scope = $1", scope.String())
	if class := classify.Of(postgres.Classified(err)); class != classify.Fatal {
		t.Errorf("the first question of a member of the first version is answered with %v (%v)", err, class)
	}
	whole(t, store(t, url), 7)

	if err := s.Sweep(t.Context(), scope, 1<<60); err != nil {
		t.Error(err)
	}
	var n int
	if postgrestest.Ask(t, url, "SELECT count(*) FROM processed_events", &n); n != 0 {
		t.Errorf("%d rows are left of %d", n, 7)
	}
}

// TestSchemaRestoredLab: if tables of an earlier version replace the store's tables while it works, as when the
// database is restored, the store migrates them again.
func TestSchemaRestoredLab(t *testing.T) {
	url := own(t)
	s := store(t, url)
	mustRemember(t, s, scope, 0, 3, rows(0, 3))
	postgrestest.Ask(t, url, "DROP TABLE processed_events, processed_scopes")
	postgrestest.Ask(t, url, firstSchema)
	_, err := s.Through(t.Context(), scope)
	refused(t, err)
	if through, err := s.Through(t.Context(), scope); err != nil || through != 0 {
		t.Errorf("through is %d, %v", through, err)
	}
}

// TestForeignTableLab: a store refuses a table that another program uses, because that program would find the ids of
// Sluice among its own.
func TestForeignTableLab(t *testing.T) {
	const foreign = `CREATE TABLE processed_events (event_id TEXT PRIMARY KEY, "offset" BIGINT NOT NULL, processed_at TIMESTAMPTZ NOT NULL DEFAULT NOW());
		INSERT INTO processed_events (event_id, "offset") VALUES ('theirs', 7)`
	for name, sql := range map[string]string{
		"Theirs": foreign, "Shared": foreign + ";" + firstSchema, "SharedAlone": foreign + ";" + firstSchema + "; DROP TABLE processed_scopes",
	} {
		t.Run(name, func(t *testing.T) {
			url := own(t)
			postgrestest.Ask(t, url, sql)
			_, err := store(t, url).Through(t.Context(), scope)
			refused(t, err, "search_path")
			var id string
			if postgrestest.Ask(t, url, "SELECT event_id FROM processed_events", &id); id != "theirs" {
				t.Errorf("their row has the id %q", id)
			}
		})
	}
}

// TestEventIDEncodingLab: in a database whose encoding is not UTF-8, a store keeps only ids in ASCII.
func TestEventIDEncodingLab(t *testing.T) {
	url := postgrestest.Server(t)
	postgrestest.Ask(t, url, "DROP DATABASE IF EXISTS latin")
	postgrestest.Ask(t, url, "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	url = strings.Replace(url, "/"+config.Database+"?", "/latin?", 1)
	s := store(t, url)
	mustRemember(t, s, scope, 0, 2, withIDs(0, "evt-1", "日本"))
	if first, second := eventID(t, url, scope, 0), eventID(t, url, scope, 1); first != "evt-1" || second != "1/"+fingerprint(1).String() {
		t.Errorf("event_id %q and %q", first, second)
	}
	whole(t, s, 2)
}
