//go:build lab

package rights

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"sluice/test/lab"
)

// topic starts a broker in this process that has the topic orders with records.
func topic(t *testing.T) string {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	address := broker.ListenAddrs()[0]
	produce(t, address, 0)
	return address
}

// secret writes a URL into a file.
func secret(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte(url), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sql runs statements as the user of a URL, and returns the error.
func sql(t *testing.T, url, text string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), text)
	return err
}

// statementsOf returns the statements of a file with SQL.
func statementsOf(text string) (all []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			all = append(all, line)
		}
	}
	return all
}

// database is a Postgres whose schema and roles come from deploy/rights.
type database struct{ admin, owner, user string }

func newDatabase(t *testing.T) *database {
	t.Helper()
	p, err := lab.StartPostgres(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := sql(t, p.URL, file(t, "postgres-roles.sql")+"ALTER ROLE sluice PASSWORD 'x'; ALTER ROLE sluice_owner PASSWORD 'x';"); err != nil {
		t.Fatal(err)
	}
	as := func(user string) string {
		u, err := url.Parse(p.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(user, "x")
		return u.String() + "&search_path=sluice"
	}
	return &database{p.URL, as("sluice_owner"), as("sluice")}
}

// pipeline returns a pipeline that keeps fingerprints, registrations and copies of the operations log in the database.
func (d *database) pipeline(t *testing.T, broker, dir, url string) *pipeline {
	t.Helper()
	file := secret(t, url)
	return configured(t, "url: file://"+dir, "brokers: ["+broker+"]", fmt.Sprintf(`, mirror_url_file: %[1]s}
fingerprints: {store: postgres, url_file: %[1]s}
members: {store: postgres, url_file: %[1]s, beat: 1s, ttl: 10s}`, file))
}

// TestPostgres lets the owner create the tables, and runs a member with the grants of deploy/rights, and with one of them
// less. Members must not be able to change tables, or the copies of the operations log.
func TestPostgres(t *testing.T) {
	d, broker := newDatabase(t), topic(t)
	grants := statementsOf(file(t, "postgres-tables.sql"))
	if len(grants) != 5 {
		t.Fatalf("%q", grants)
	}
	dir := t.TempDir()
	owner := d.pipeline(t, broker, dir, d.owner)
	// The exit code also shows that the group does not exist yet, which this broker answers with an error.
	if _, text := owner.runs(t, "check"); strings.Count(text, " reachable\n") != 3 {
		t.Fatalf("check as the owner: %s", text)
	}
	if err := sql(t, d.owner, strings.Join(grants, "")); err != nil {
		t.Fatal(err)
	}
	p := d.pipeline(t, broker, dir, d.user)
	if code, text := p.runs(t, strings.Fields("pause orders --reason test --yes")...); code != 0 {
		t.Fatalf("pause: %s", text)
	}
	if code, text := p.runs(t, strings.Fields("resume orders --reason test --yes")...); code != 0 {
		t.Fatalf("resume: %s", text)
	}
	p.member(t, "all grants", func(r *report) bool {
		return len(r.Holds) == 0 && r.position() >= 2 && r.Components.Members.Status == "ok" && d.count(t, "audit_log") == 2 && d.count(t, "processed_events") > 0
	})
	if code, text := p.runs(t, "check"); code != 0 || strings.Count(text, " reachable\n") != 3 {
		t.Errorf("check: exit code %d: %s", code, text)
	}
	for _, statement := range []string{
		"CREATE TABLE sluice.mine (n int)", "DROP TABLE sluice.processed_events", "TRUNCATE sluice.processed_events", "ALTER TABLE sluice.audit_log ADD COLUMN n int",
		"UPDATE sluice.audit_log SET reason = ''", "DELETE FROM sluice.audit_log", "TRUNCATE sluice.audit_log", "UPDATE sluice.audit_log_version SET version_id = 9",
		"CREATE TABLE public.mine (n int)", "CREATE SCHEMA mine", "CREATE ROLE mine", "SELECT * FROM pg_authid",
	} {
		err := sql(t, d.user, statement)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "42501" {
			t.Errorf("%s: %v, want it to be refused", statement, err)
		}
	}

	for _, grant := range append(grants, "GRANT USAGE ON SCHEMA sluice TO sluice;") {
		_, target, _ := strings.Cut(grant, " ON ")
		target, _, _ = strings.Cut(target, " TO ")
		t.Run("without the grant on "+target, func(t *testing.T) {
			run, as := d.owner, strings.Replace(strings.Replace(grant, "GRANT ", "REVOKE ", 1), " TO sluice;", " FROM sluice;", 1)
			if err := sql(t, run, as); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := sql(t, run, grant); err != nil {
					t.Fatal(err)
				}
			}()
			p := d.pipeline(t, topic(t), t.TempDir(), d.user)
			switch target {
			case "sluice.audit_log":
				if _, text := p.runs(t, "check"); !strings.Contains(text, "GRANT SELECT, INSERT ON") {
					t.Errorf("check does not name the missing right: %s", text)
				}
			case "sluice.consumer_registrations", "sluice.consumer_last_seen":
				p.member(t, "members are unknown", func(r *report) bool {
					return r.Components.Members.Status == "unknown" && strings.Contains(r.Components.Members.Reason, "GRANT ")
				})
			default:
				p.member(t, "a hold", func(r *report) bool { return r.held("fingerprints_unavailable") })
			}
		})
	}
}

// count returns the number of rows of a table.
func (d *database) count(t *testing.T, table string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.owner)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM sluice."+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRedis runs a member with the user of deploy/rights/redis.acl, and with one of its rights less. The user must be
// refused other commands and other keys.
func TestRedis(t *testing.T) {
	r, err := lab.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop() })
	words := strings.Fields(file(t, "redis.acl"))
	if len(words) < 15 || words[0] != "user" || words[1] != "sluice" {
		t.Fatalf("%q", words)
	}
	admin := redis.NewClient(&redis.Options{Addr: r.Addr})
	t.Cleanup(func() { _ = admin.Close() })
	grant := func(words []string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "sluice", "reset"}
		for _, w := range words[2:] {
			args = append(args, w)
		}
		if err := errors.Join(admin.Do(t.Context(), args...).Err(), admin.FlushAll(t.Context()).Err(), admin.ScriptFlush(t.Context()).Err()); err != nil {
			t.Fatal(err)
		}
	}
	address := topic(t)
	p := configured(t, "url: file://"+t.TempDir(), "brokers: ["+address+"]", fmt.Sprintf(`}
members: {store: redis, url_file: %s, beat: 1s, ttl: 10s}`, secret(t, "redis://sluice:password@"+r.Addr+"/0")))
	grant(words)
	p.member(t, "all rights", func(r *report) bool { return r.position() >= 2 && r.Components.Members.Status == "ok" })
	if code, text := p.runs(t, "members"); code != 0 {
		t.Errorf("members: exit code %d: %s", code, text)
	}
	user := redis.NewClient(&redis.Options{Addr: r.Addr, Username: "sluice", Password: "password", DisableIdentity: true})
	t.Cleanup(func() { _ = user.Close() })
	for _, command := range [][]any{
		{"KEYS", "*"},
		{"SCAN", "0"},
		{"FLUSHALL"},
		{"CONFIG", "GET", "*"},
		{"ACL", "LIST"},
		{"SHUTDOWN"},
		{"GET", "another"},
		{"SET", "another", "x"},
		{"DEL", "worker:other:a"},
		{"RENAME", "worker:connector:a", "worker:connector:b"},
		{"EVAL", "return redis.call('GET', 'another')", "0"},
	} {
		if err := user.Do(t.Context(), command...).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "can't access at least one of the keys") && !strings.Contains(err.Error(), "No permissions") {
			t.Errorf("%v: %v, want it to be refused", command, err)
		}
	}
	// That each word is needed shows TestRightsLab in health/membership/redis, with the same line in docs/members.md.
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "members.md"))
	if err != nil {
		t.Fatal(err)
	}
	if line := "ACL SETUSER " + strings.Join(words[1:], " "); !slices.Contains(strings.Split(string(page), "\n"), line) {
		t.Errorf("docs/members.md does not have the line %s", line)
	}
}
