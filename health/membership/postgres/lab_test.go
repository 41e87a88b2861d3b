//go:build lab

package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/classify/postgres/postgrestest"
	"sluice/health/membership"
	"sluice/health/membership/membershiptest"
	"sluice/test/lab"
)

// poor creates a user who has the right USAGE on the schema and no other rights. It returns a URL with that user, and
// the user's name.
func poor(t *testing.T, rich, schema string) (string, string) {
	t.Helper()
	user := "poor_" + schema
	postgrestest.Ask(t, rich, "CREATE ROLE "+user+" LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA "+schema+" TO "+user)
	u, err := url.Parse(rich)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "x")
	return u.String(), user
}

func store(t *testing.T, url string, of membership.Scope) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{URL: url, Scope: of})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// works fails the test unless a member can register, be listed, and leave.
func works(t *testing.T, s *Store) {
	t.Helper()
	id := "worker-" + rand.Text() // an id of its own: works runs several times with one store
	if fresh, err := s.Beat(t.Context(), membership.Beat{ID: id, Status: membership.Running, Idle: -1, Lag: 7, TTL: time.Minute}); err != nil || !fresh {
		t.Errorf("the first beat: fresh %v, %v", fresh, err)
	}
	active, err := membershiptest.IsActive(t.Context(), s, id)
	if err != nil || !active {
		t.Errorf("active %v, %v", active, err)
	}
	if _, err := s.Sweep(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	if err := s.Leave(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// refused fails the test unless a heartbeat fails with an error that contains all texts.
func refused(t *testing.T, s *Store, texts ...string) {
	t.Helper()
	_, err := s.Beat(t.Context(), membership.Beat{ID: "a", Status: membership.Running, TTL: time.Minute})
	if !errors.Is(err, membership.ErrUnavailable) || strings.Contains(err.Error(), "password=") {
		t.Fatalf("got %v", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in: %v", text, err)
		}
	}
}

func TestStoreLab(t *testing.T) {
	t.Parallel()
	url, _ := postgrestest.Schema(t)
	membershiptest.Run(t, func(t *testing.T, _ string) membershiptest.Server {
		t.Helper()
		return membershiptest.Server{
			Open: func(t *testing.T, s membership.Scope) membership.Store { t.Helper(); return store(t, url, s) },
			Pass: func(d time.Duration) { <-time.After(d) },
			Unit: 500 * time.Millisecond,
			Lose: func(t *testing.T, s membership.Scope, id string) {
				t.Helper()
				conn, err := pgx.Connect(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(context.WithoutCancel(t.Context()))
				_, err = conn.Exec(t.Context(), "DELETE FROM consumer_registrations WHERE stream_name = $1 AND group_id = $2 AND consumer_id = $3", s.Pipeline, s.Group, id)
				if err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

// TestCleanupFunctionLab: an operator can call the cleanup function from any schema, as the docs say. Members can read
// rows that were inserted by hand.
func TestCleanupFunctionLab(t *testing.T) {
	url, schema := postgrestest.Schema(t)
	s := store(t, url, scope)
	works(t, s)
	var columns, key string
	postgrestest.Ask(t, url, `SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position) FILTER (WHERE ordinal_position <= 5)
		FROM information_schema.columns WHERE table_name = 'consumer_registrations' AND table_schema = current_schema()`, &columns)
	postgrestest.Ask(t, url, "SELECT indexdef FROM pg_indexes WHERE tablename = 'consumer_registrations' AND schemaname = current_schema()", &key)
	if want := "stream_name text, group_id text, consumer_id text, last_heartbeat timestamp with time zone, session_timeout_ms bigint"; columns != want {
		t.Errorf("columns %s", columns)
	}
	if !strings.Contains(key, "UNIQUE") || !strings.Contains(key, "(stream_name, group_id, consumer_id)") {
		t.Errorf("key %s", key)
	}
	postgrestest.Ask(t, url, `INSERT INTO consumer_registrations (stream_name, group_id, consumer_id, last_heartbeat, session_timeout_ms) VALUES
		('orders', 'sluice', 'worker-1', now() - interval '29 seconds', 30000),
		('orders', 'sluice', 'worker-2', now() - interval '31 seconds', 30000),
		('orders', 'email-notif', 'worker-3', now() - interval '1 day', 30000),
		('payments', 'sluice', 'worker-4', now() - interval '50 seconds', 60000)`)
	members, err := s.Members(t.Context())
	if err != nil || len(members) != 2 || !members[0].Active() || members[1].Active() || members[0].Status != membership.Running ||
		members[0].Lag != -1 || members[0].Idle >= 0 || members[0].Age < 29*time.Second || members[0].Age > 30*time.Second {
		t.Errorf("%+v, %v", members, err)
	}
	var deleted int
	postgrestest.Ask(t, postgrestest.Server(t), "SELECT "+schema+".cleanup_stale_consumers()", &deleted)
	if deleted != 2 {
		t.Errorf("%d were deleted", deleted)
	}
	var rest string
	postgrestest.Ask(t, url, "SELECT string_agg(consumer_id, ' ' ORDER BY consumer_id) FROM consumer_registrations", &rest)
	if rest != "worker-1 worker-4" {
		t.Errorf("left are %s", rest)
	}
	if fresh, err := s.Beat(t.Context(), membership.Beat{ID: "worker-1", Status: membership.Running, TTL: time.Minute}); err != nil || fresh {
		t.Errorf("worker-1: fresh %v, %v", fresh, err)
	}
}

// TestMigrationsLab: the first start creates the tables; a second start changes nothing.
func TestMigrationsLab(t *testing.T) {
	url, _ := postgrestest.Schema(t)
	works(t, store(t, url, scope))
	shape := func() (text string) {
		postgrestest.Ask(t, url, `SELECT string_agg(relname || ' ' || oid || ' ' || xmin::text, ', ' ORDER BY relname) FROM pg_class
			WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'`, &text)
		return text
	}
	before := shape()
	works(t, store(t, url, scope))
	if after := shape(); after != before {
		t.Errorf("%s became %s", before, after)
	}
	var applied string
	postgrestest.Ask(t, url, "SELECT string_agg(version_id::text, ' ' ORDER BY id) FROM consumer_registrations_version", &applied)
	if applied != "0 1 2 3" {
		t.Errorf("applied are %s", applied)
	}
	tables, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(tables.Migrations, "*.sql")
	if err != nil || int64(len(files)) != tables.Latest {
		t.Errorf("%d migrations, the last is %d: %v", len(files), tables.Latest, err)
	}
}

// TestMigrationsAtOnceLab: if eight members start at the same time, all of them can register, and each migration is
// recorded once.
func TestMigrationsAtOnceLab(t *testing.T) {
	t.Parallel()
	url, _ := postgrestest.Schema(t)
	var members sync.WaitGroup
	for range 8 {
		s := store(t, url, scope)
		members.Go(func() { works(t, s) })
	}
	members.Wait()
	var applied int
	postgrestest.Ask(t, url, "SELECT count(*) FROM consumer_registrations_version", &applied)
	if applied != 4 {
		t.Errorf("%d versions are noted", applied)
	}
}

// TestMigrationsOutliveTheirCallLab: the migrations are completed even if the server is so slow that every call that
// waits for them times out.
func TestMigrationsOutliveTheirCallLab(t *testing.T) {
	t.Parallel()
	far, _ := postgrestest.Schema(t)
	u, err := url.Parse(far)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := lab.StartTCPProxy()
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	proxy.Connect(u.Host)
	proxy.Delay(40 * time.Millisecond)
	u.Host = proxy.Addr
	s := store(t, u.String(), scope)
	calls := 0
	err = lab.Until(t.Context(), func() (bool, error) {
		calls++
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := s.Members(ctx)
		return err == nil, nil
	})
	if err != nil || calls == 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// TestMigrationFromFirstLab: tables of the first version are migrated to the present version and keep their rows.
func TestMigrationFromFirstLab(t *testing.T) {
	url, _ := postgrestest.Schema(t)
	before, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	script, err := fs.ReadFile(before.Migrations, "00001_registrations.sql")
	if err != nil {
		t.Fatal(err)
	}
	before.Migrations, before.Latest = fstest.MapFS{"00001_registrations.sql": {Data: script}}, 1
	before.Columns, before.Unnoted = before.First, before.First
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := before.Prepare(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	postgrestest.Ask(t, url, "INSERT INTO consumer_registrations VALUES ('orders', 'sluice', 'old', now(), 30000)")
	s := store(t, url, scope)
	works(t, s)
	if active, err := membershiptest.IsActive(t.Context(), s, "old"); err != nil || !active {
		t.Errorf("active %v, %v", active, err)
	}
	// A member that still runs the first version continues with its statements.
	postgrestest.Ask(t, url, "INSERT INTO consumer_registrations (stream_name, group_id, consumer_id, last_heartbeat, session_timeout_ms) VALUES ('orders', 'sluice', 'older', now(), 30000)")

	// Tables of a later version stay as they are, if they have the columns of this version.
	postgrestest.Ask(t, url, "ALTER TABLE consumer_registrations ADD COLUMN more TEXT; INSERT INTO consumer_registrations_version (version_id, is_applied) VALUES (4, true)")
	works(t, store(t, url, scope))
}

// TestMigrationFromSecondLab: members of the version without addresses, and their tables, continue: each version reads
// the registrations of the other.
func TestMigrationFromSecondLab(t *testing.T) {
	url, _ := postgrestest.Schema(t)
	before, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for _, name := range []string{"00001_registrations.sql", "00002_status_and_last_seen.sql"} {
		script, err := fs.ReadFile(before.Migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: script}
	}
	before.Migrations, before.Latest, before.Columns = files, 2, before.Unnoted
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := before.Prepare(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO consumer_registrations (stream_name, group_id, consumer_id, last_heartbeat, session_timeout_ms) VALUES ('orders', 'sluice', '%s', now(), 30000)"
	postgrestest.Ask(t, url, fmt.Sprintf(insert, "old"))
	s := store(t, url, scope)
	if _, err := s.Beat(t.Context(), membership.Beat{ID: "new", Status: membership.Running, Idle: -1, Lag: -1, TTL: time.Minute, Address: "http://10.1.2.3:8080"}); err != nil {
		t.Fatal(err)
	}
	postgrestest.Ask(t, url, fmt.Sprintf(insert, "older"))
	members, err := s.Members(t.Context())
	if err != nil || len(members) != 3 || members[0].Address != "http://10.1.2.3:8080" || members[1].Address != "" || members[2].Address != "" || !members[1].Active() {
		t.Errorf("%+v, %v", members, err)
	}
	if err := before.Prepare(t.Context(), pool); err != nil {
		t.Errorf("the earlier version: %v", err)
	}
	// Another program wrote an address that is too long: the member is listed without it.
	postgrestest.Ask(t, url, "UPDATE consumer_registrations SET address = repeat('x', 1000000) WHERE consumer_id = 'old'")
	members, err = s.Members(t.Context())
	if !errors.Is(err, membership.ErrForeign) || len(members) != 3 || members[1].ID != "old" || members[1].Address != "" {
		t.Errorf("%+v, %v", members, err)
	}
}

// TestWipedLab: a store creates dropped tables again without a restart, and keeps the tables that were not dropped.
func TestWipedLab(t *testing.T) {
	t.Parallel()
	for _, wipe := range []string{
		"DROP TABLE consumer_registrations",
		"DROP TABLE consumer_registrations, consumer_last_seen",
		"DROP TABLE consumer_registrations, consumer_last_seen, consumer_registrations_version; DROP FUNCTION cleanup_stale_consumers()",
		"DROP FUNCTION cleanup_stale_consumers()",
		"DROP FUNCTION cleanup_stale_consumers(TEXT, TEXT)",
		"DROP TABLE consumer_registrations_version",
		"ALTER TABLE consumer_registrations DROP COLUMN consumer_lag",
		"ALTER TABLE consumer_registrations DROP COLUMN address",
		"TRUNCATE consumer_registrations, consumer_last_seen, consumer_registrations_version",
		"DELETE FROM consumer_registrations_version WHERE version_id > 1",
	} {
		url, _ := postgrestest.Schema(t)
		s := store(t, url, scope)
		works(t, s)
		postgrestest.Ask(t, url, "INSERT INTO consumer_last_seen VALUES ('orders', 'sluice', 'missing', now() - interval '1 minute', 30000, 'RUNNING', now(), NULL, NULL)")
		postgrestest.Ask(t, url, wipe)
		works(t, s)
		works(t, store(t, url, scope))
		members, err := s.Members(t.Context())
		if kept := !strings.Contains(wipe, lastSeen); err != nil || kept != (len(members) == 1) {
			t.Errorf("%s: %v, %v", wipe, members, err)
		}
	}
}

// TestRightsLab: a user who may not create tables gets an error with the statements to run. The store works once they
// have been run.
func TestRightsLab(t *testing.T) {
	t.Parallel()
	rich, schema := postgrestest.Schema(t)
	plain, user := poor(t, rich, schema)
	s := store(t, plain, scope)
	grant := `GRANT SELECT, INSERT, UPDATE, DELETE ON consumer_registrations, consumer_last_seen TO "` + user + `"`
	refused(t, s, "may not create the tables in schema "+schema, `GRANT USAGE, CREATE ON SCHEMA "`+schema+`" TO "`+user+`"`, "connector members", grant)

	works(t, store(t, rich, scope)) // the owner of the tables creates them
	refused(t, s, "may not use the tables", grant)
	postgrestest.Ask(t, rich, grant)
	works(t, s)
	works(t, store(t, plain, scope))

	// If tables of an earlier version belong to another user, the error says so.
	postgrestest.Ask(t, rich, "GRANT CREATE ON SCHEMA "+schema+" TO "+user+"; GRANT SELECT, INSERT, DELETE ON consumer_registrations_version TO "+user+
		"; DELETE FROM consumer_registrations_version WHERE version_id >= 2")
	refused(t, store(t, plain, scope), "may not create the tables in schema "+schema, "owns the existing ones", "SQLSTATE 42501")

	second, schema := postgrestest.Schema(t)
	plain, user = poor(t, second, schema)
	s = store(t, plain, scope)
	refused(t, s, "may not create the tables")
	postgrestest.Ask(t, second, "GRANT CREATE ON SCHEMA "+schema+" TO "+user)
	works(t, s)

	refused(t, store(t, strings.Replace(rich, "search_path="+schema, "search_path=nowhere", 1)+"&search_path=nowhere", scope), "no schema", "search_path")
	refused(t, store(t, strings.Replace(plain, ":x@", ":y@", 1), scope), "28P01")
	refused(t, store(t, strings.Replace(rich, "/postgres?", "/nodatabase?", 1), scope), "3D000")
}

// TestForeignTableLab: a table of another program is left as it is.
func TestForeignTableLab(t *testing.T) {
	for table, create := range map[string]string{
		registrations: "CREATE TABLE consumer_registrations (stream_name TEXT, group_id TEXT, consumer_id TEXT, last_heartbeat TIMESTAMP, session_timeout_ms INTEGER)",
		lastSeen:      "CREATE VIEW consumer_last_seen AS SELECT 1 AS id",
	} {
		url, schema := postgrestest.Schema(t)
		postgrestest.Ask(t, url, create)
		refused(t, store(t, url, scope), "table "+table+" of schema "+schema+" belongs to another program", "search_path")
		var n int
		postgrestest.Ask(t, url, "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace", &n)
		if n != 1 {
			t.Errorf("%d things in the schema of another program", n)
		}
	}
}

// TestFaultsLab: calls to a server that is down, killed or locked end with an error, and succeed once the server is
// back.
func TestFaultsLab(t *testing.T) {
	t.Parallel()
	pg, err := lab.StartPostgres(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	}()
	s := store(t, pg.URL, scope)
	works(t, s)
	for _, down := range []func() error{pg.Stopped, pg.Kill} {
		if err := down(); err != nil {
			t.Fatal(err)
		}
		var failed error
		if err := lab.Until(t.Context(), func() (bool, error) { _, failed = s.Members(t.Context()); return failed != nil, nil }); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(failed, membership.ErrUnavailable) {
			t.Error(failed)
		}
		if err := pg.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lab.Until(t.Context(), func() (bool, error) { _, failed = s.Members(t.Context()); return failed == nil, nil }); err != nil {
			t.Fatal(failed)
		}
		works(t, s)
	}

	// Locked: a call ends at its deadline and leaves no query that waits in the server.
	conn, err := pgx.Connect(t.Context(), pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE consumer_registrations"); err != nil {
		t.Fatal(err)
	}
	refused(t, s, errSlow.Error())
	err = lab.Until(t.Context(), func() (bool, error) {
		var waiting int
		postgrestest.Ask(t, pg.URL, "SELECT count(*) FROM pg_locks WHERE NOT granted", &waiting)
		return waiting == 0, nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	works(t, s)
}

// TestBoundsLab: the store does not read rows of other programs that are too large, and lists the members beside them.
// Of more than MaxMembers it lists those with the newest heartbeats.
func TestBoundsLab(t *testing.T) {
	t.Parallel()
	url, _ := postgrestest.Schema(t)
	s := store(t, url, scope)
	beat := func() {
		t.Helper()
		if _, err := s.Beat(t.Context(), membership.Beat{ID: "me", Status: membership.Running, Idle: -1, Lag: -1, TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	beat()
	insert := func(table, id, status, rows string) {
		t.Helper()
		postgrestest.Ask(t, url, "INSERT INTO "+table+" (stream_name, group_id, consumer_id, last_heartbeat, session_timeout_ms, status, status_since) "+
			"SELECT '"+scope.Pipeline+"', '"+scope.Group+"', "+id+", NOW() - n * INTERVAL '1 second', 3600000, "+status+", NOW() FROM generate_series(1, "+rows+") n")
	}
	insert(registrations, "'large-status-' || n", "repeat('x', 100 * 1024 * 1024)", "1")
	insert(lastSeen, "'large-status-' || n + 1", "repeat('x', 1024 * 1024)", "20")
	insert(lastSeen, "repeat('i', 100000) || n", "'RUNNING'", "20")
	list := func() (members []membership.Member, err error) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		members, err = s.Members(t.Context())
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 32<<20 {
			t.Errorf("%d MiB allocated", allocated>>20)
		}
		return members, err
	}
	members, err := list()
	if !errors.Is(err, membership.ErrForeign) || !strings.Contains(err.Error(), "41 members") || len(members) != 1 || members[0].ID != "me" {
		t.Errorf("%d members: %v", len(members), err)
	}
	insert(registrations, "'m' || n", "'RUNNING'", fmt.Sprint(2*membership.MaxMembers))
	if members, _ = list(); len(members) < membership.MaxMembers-100 || len(members) > membership.MaxMembers {
		t.Errorf("%d members are listed", len(members))
	}
	if !slices.ContainsFunc(members, func(m membership.Member) bool { return m.ID == "me" }) ||
		slices.ContainsFunc(members, func(m membership.Member) bool { return m.ID == "m9999" }) {
		t.Error("those that were seen last do not come first")
	}
}
