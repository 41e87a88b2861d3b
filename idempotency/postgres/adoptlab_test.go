//go:build lab

package postgres

import (
	_ "embed"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"sluice/classify/postgres/postgrestest"
)

//go:embed testdata/schema_2.sql
var secondSchema string

// schemaOf returns the schema that a URL of [own] names.
func schemaOf(url string) string { return url[strings.LastIndex(url, "=")+1:] }

// poor creates a user who may use the schema of url and the tables that it has now, but not create tables. It returns a
// URL with that user, and the user's name.
func poor(t *testing.T, url string) (plain, user string) {
	t.Helper()
	user = "poor_" + schemaOf(url)
	postgrestest.Ask(t, url, "CREATE ROLE "+user+" LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA "+schemaOf(url)+" TO "+user+"; GRANT ALL ON ALL TABLES IN SCHEMA "+schemaOf(url)+" TO "+user)
	return strings.Replace(url, "postgres:sluice@", user+":x@", 1), user
}

// old runs a script that creates the tables of an earlier version, and adds rows with the offsets [0, 5).
func old(t *testing.T, url, script string) {
	t.Helper()
	postgrestest.Ask(t, url, script)
	through, fingerprint := "next_offset", "fingerprint"
	if script == firstSchema {
		through, fingerprint = "through", "event_id"
	}
	postgrestest.Ask(t, url, "INSERT INTO processed_scopes (scope, "+through+") VALUES ('"+scope.String()+"', 5)")
	for e := range rows(0, 5) {
		postgrestest.Ask(t, url, fmt.Sprintf(`INSERT INTO processed_events (%s, "offset", scope, recorded_at) VALUES ('1/%s', %d, 1, %d)`, fingerprint, e.Fingerprint, e.Offset, e.At))
	}
}

// applied returns the migrations that goose has recorded, or "none" if goose's table does not exist.
func applied(t *testing.T, url string) (noted string) {
	t.Helper()
	if postgrestest.Ask(t, url, "SELECT CASE WHEN to_regclass('processed_events_version') IS NULL THEN 'none' ELSE 'some' END", &noted); noted == "some" {
		postgrestest.Ask(t, url, "SELECT string_agg(version_id::text, ' ' ORDER BY id) FROM processed_events_version", &noted)
	}
	return noted
}

// TestAdoptLab: goose takes over the tables of each earlier version and keeps their rows. It does so once, even if many
// members start at the same time.
func TestAdoptLab(t *testing.T) {
	for name, script := range map[string]string{"First": firstSchema, "Second": secondSchema} {
		t.Run(name, func(t *testing.T) {
			url := own(t)
			old(t, url, script)
			var members sync.WaitGroup
			for range 6 {
				s := store(t, url)
				members.Go(func() { whole(t, s, 5) })
			}
			members.Wait()
			if noted := applied(t, url); noted != "0 1" {
				t.Errorf("applied are %s", noted)
			}
			s := store(t, url)
			mustRemember(t, s, scope, 5, 7, withIDs(5, "evt-5", "evt-6"))
			whole(t, s, 7)
		})
	}
}

// TestMigrationsLab: a second start changes nothing, and the migrations create exactly the tables that [tables]
// describes.
func TestMigrationsLab(t *testing.T) {
	url := own(t)
	whole(t, store(t, url), 0)
	shape := func() (text string) {
		postgrestest.Ask(t, url, `SELECT string_agg(relname || ' ' || oid || ' ' || xmin::text, ', ' ORDER BY relname) FROM pg_class
			WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'`, &text)
		return text
	}
	before := shape()
	whole(t, store(t, url), 0)
	if after := shape(); after != before || applied(t, url) != "0 1" {
		t.Errorf("%s became %s, applied %s", before, after, applied(t, url))
	}
	described, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	var there int
	postgrestest.Ask(t, url, `SELECT count(*) FROM information_schema.columns WHERE table_schema = current_schema() AND table_name IN ('processed_events', 'processed_scopes')`, &there)
	if there != len(described.Columns) {
		t.Errorf("%d columns, described are %v", there, described.Columns)
	}
	if files, err := fs.Glob(described.Migrations, "*.sql"); err != nil || int64(len(files)) != described.Latest {
		t.Errorf("%d migrations, the last is %d: %v", len(files), described.Latest, err)
	}
}

// TestWipedLab: a store creates tables again that were dropped while it works, and keeps the tables that were not
// dropped.
func TestWipedLab(t *testing.T) {
	for _, wipe := range []string{
		"DROP TABLE processed_events, processed_scopes", "DROP TABLE processed_events, processed_scopes, processed_events_version",
		"DROP TABLE processed_events_version", "TRUNCATE processed_events_version", "DROP TABLE processed_scopes",
	} {
		url := own(t)
		s := store(t, url)
		mustRemember(t, s, scope, 0, 3, rows(0, 3))
		postgrestest.Ask(t, url, wipe)
		want := int64(3)
		if strings.Contains(wipe, "processed_scopes") {
			want = 0
		}
		if through, err := s.Through(t.Context(), scope); err != nil || through != want {
			t.Errorf("%s: through is %d, %v", wipe, through, err)
		}
		again := store(t, url)
		mustRemember(t, again, scope, want, 4, rows(want, 4))
		whole(t, again, 4)
		if noted := applied(t, url); noted != "0 1" {
			t.Errorf("%s: applied are %s", wipe, noted)
		}
	}
}

// TestRightsLab: a user who may not create tables can use existing ones, whether goose has recorded its migrations or
// not. If tables are missing, the error has the statements to run.
func TestRightsLab(t *testing.T) {
	url := own(t)
	plain, user := poor(t, url)
	s := store(t, plain)
	_, err := s.Through(t.Context(), scope)
	refused(t, err, "may not create the tables in schema "+schemaOf(url), "connector check", `ON processed_events, processed_scopes TO "`+user+`"`)
	whole(t, store(t, url), 0)
	_, err = s.Through(t.Context(), scope)
	refused(t, err, "may not use the tables", "GRANT SELECT")
	postgrestest.Ask(t, url, "GRANT SELECT, INSERT, UPDATE, DELETE ON processed_events, processed_scopes TO "+user)
	mustRemember(t, s, scope, 0, 3, rows(0, 3))
	whole(t, store(t, plain), 3)

	// The tables belong to another user, and goose has recorded nothing. The store of their owner records it later.
	for name, grant := range map[string]string{"NoCreate": "SELECT", "Create": "GRANT CREATE ON SCHEMA %s TO %s"} {
		t.Run(name, func(t *testing.T) {
			url := own(t)
			old(t, url, secondSchema)
			plain, user := poor(t, url)
			if strings.Contains(grant, "%") {
				postgrestest.Ask(t, url, fmt.Sprintf(grant, schemaOf(url), user))
			}
			whole(t, store(t, plain), 5)
			if noted := applied(t, url); noted != "none" {
				t.Errorf("applied are %s by another user than the tables'", noted)
			}
			whole(t, store(t, url), 5)
			if noted := applied(t, url); noted != "0 1" {
				t.Errorf("applied are %s", noted)
			}
			whole(t, store(t, plain), 5)
		})
	}
	// Tables of the first version that belong to another user have to be changed by their owner.
	url = own(t)
	old(t, url, firstSchema)
	plain, user = poor(t, url)
	postgrestest.Ask(t, url, "GRANT CREATE ON SCHEMA "+schemaOf(url)+" TO "+user)
	_, err = store(t, plain).Through(t.Context(), scope)
	refused(t, err, "owns the existing ones", "SQLSTATE 42501")
	whole(t, store(t, url), 5)
}
