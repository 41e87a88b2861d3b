package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"sluice/reliability/panics"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	registrations = "consumer_registrations"
	lastSeen      = "consumer_last_seen"
	cleanup       = "cleanup_stale_consumers"
	// versions is where goose notes which migrations were applied.
	versions = "consumer_registrations_version"
	// latest is the last migration.
	latest = 2
)

// Locks: any numbers that no other program is likely to use. One is for migrations, the other one seeds those of members.
const (
	migrateLock = 0x534c5549434532
	beatLock    = 0x534c5549434533
)

// first are the columns that the first migration makes, columns those that the last one leaves, as table.column.
var (
	first = []string{
		registrations + ".stream_name", registrations + ".group_id", registrations + ".consumer_id",
		registrations + ".last_heartbeat", registrations + ".session_timeout_ms",
	}
	columns = append(slices.Clip(first),
		registrations+".status", registrations+".status_since", registrations+".last_message_at", registrations+".consumer_lag",
		lastSeen+".stream_name", lastSeen+".group_id", lastSeen+".consumer_id", lastSeen+".last_heartbeat", lastSeen+".session_timeout_ms",
		lastSeen+".status", lastSeen+".status_since", lastSeen+".last_message_at", lastSeen+".consumer_lag",
	)
)

// found is what there is of our tables.
type found struct {
	schema  string   // where they are, or would be made
	create  bool     // we may make tables there
	tables  []string // with our names
	columns []string // of these, as table.column
	cleanup bool     // both functions are there
	noted   bool     // there are notes about migrations
	version int64    // of the last migration that was applied: 0 none, -1 not for us to see
}

// whole says that a member can work with what there is.
func (f found) whole() bool { return len(f.missing(columns)) == 0 && f.cleanup }

// missing are the columns that are not there.
func (f found) missing(of []string) []string {
	return slices.DeleteFunc(slices.Clone(of), func(c string) bool { return slices.Contains(f.columns, c) })
}

// foreign says that a table of ours was made by another program: it lacks what each of our versions has.
func (f found) foreign() error {
	want := columns
	if f.version > 0 {
		want = first // a later migration adds the others
	}
	lacking := slices.DeleteFunc(f.missing(want), func(c string) bool {
		table, _, _ := strings.Cut(c, ".")
		return !slices.Contains(f.tables, table)
	})
	if len(lacking) == 0 {
		return nil
	}
	table, _, _ := strings.Cut(lacking[0], ".")
	return fmt.Errorf("table %s of schema %s is not ours, it has no column %s: give members a schema of their own, by search_path in the URL (postgres://…&search_path=sluice)",
		table, f.schema, strings.TrimPrefix(lacking[0], table+"."))
}

// preparation is work on the tables. err is set before done is closed.
type preparation struct {
	done chan struct{}
	err  error
}

// prepare waits until the tables are there. The work goes on when ctx ends: callers with little time get there in the end.
func (s *Store) prepare(ctx context.Context) error {
	if s.ready.Load() {
		return nil
	}
	s.mu.Lock()
	p := s.now
	if p == nil && s.lasting.Err() == nil {
		p = &preparation{done: make(chan struct{})}
		s.now = p
		s.working.Go(func() { s.work(p) })
	}
	s.mu.Unlock()
	if p == nil {
		return errors.New("the store is closed")
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("the tables are being looked for: %w", context.Cause(ctx))
	}
}

// work sees to the tables.
func (s *Store) work(p *preparation) {
	ctx, cancel := context.WithTimeoutCause(s.lasting, migrateTimeout, errSlow)
	defer cancel()
	err := panics.Catch(func() error { // on a goroutine of its own a panic would end the process
		there, err := look(ctx, s.pool)
		if err == nil && !there.current() {
			err = s.migrate(ctx)
		}
		return err
	})
	s.ready.Store(err == nil)
	p.err = because(ctx, err)
	s.mu.Lock()
	s.now = nil
	s.mu.Unlock()
	close(p.done)
}

// current says that no migration is needed. One that we may not see is not ours to apply: what is there counts.
func (f found) current() bool { return f.whole() && (f.version < 0 || f.version >= latest) }

// lost says that something is gone that migrations had made.
func (f found) lost() bool {
	return f.version >= latest && !f.whole() || f.version > 0 && (len(f.missing(first)) > 0 || !f.cleanup)
}

// rower asks for a row: a pool or a transaction.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// look finds out what there is, in the schema that statements without one would make tables in.
func look(ctx context.Context, db rower) (f found, err error) {
	var readable *bool
	err = db.QueryRow(ctx, `
		SELECT coalesce(current_schema()::TEXT, ''), coalesce(has_schema_privilege(n.oid, 'CREATE'), FALSE),
			ARRAY(SELECT relname::TEXT FROM pg_class WHERE relnamespace = n.oid AND relname = ANY ($1)),
			ARRAY(SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
				WHERE c.relnamespace = n.oid AND c.relname = ANY ($1) AND a.attnum > 0 AND NOT a.attisdropped),
			(SELECT count(*) = 2 FROM pg_proc WHERE pronamespace = n.oid AND proname = $2 AND pronargs IN (0, 2)),
			(SELECT has_table_privilege(oid, 'SELECT') FROM pg_class WHERE relnamespace = n.oid AND relname = $3)
		FROM (VALUES (1)) AS one LEFT JOIN pg_namespace n ON nspname = current_schema()`,
		[]string{registrations, lastSeen}, cleanup, versions).Scan(&f.schema, &f.create, &f.tables, &f.columns, &f.cleanup, &readable)
	switch {
	case err != nil:
		return f, fmt.Errorf("look for the tables: %w", err)
	case f.schema == "":
		return f, errors.New("no schema: search_path names none that is there and that the user may use (CREATE SCHEMA, GRANT USAGE)")
	case readable == nil:
		return f, nil
	case !*readable:
		f.noted = true
		f.version = -1
		return f, nil
	}
	f.noted = true
	if err := db.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versions).Scan(&f.version); err != nil {
		return f, fmt.Errorf("look for the version of the tables: %w", err)
	}
	return f, nil
}

// migrate makes the tables, or brings them up to this version. Members that start together do so one after the other, by a
// lock of a transaction that does nothing else: a proxy that pools transactions keeps it too, and it ends with its connection.
func (s *Store) migrate(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(lock pgx.Tx) error {
		if _, err := lock.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrateLock)); err != nil {
			return fmt.Errorf("wait for others that make the tables: %w", err)
		}
		there, err := look(ctx, s.pool)
		if err != nil || there.current() {
			return err
		}
		if err := there.foreign(); err != nil {
			return err
		}
		if !there.create {
			return s.mayNot(there)
		}
		if err := s.apply(ctx, there); err != nil {
			if code(err) == insufficientPrivilege { // somebody else's tables, of an earlier version
				return fmt.Errorf("%w: %w", s.mayNot(there), err)
			}
			return fmt.Errorf("make the tables: %w", err)
		}
		if there, err = look(ctx, s.pool); err == nil && !there.whole() {
			err = fmt.Errorf("make the tables: %s are missing in schema %s after all migrations", strings.Join(append(there.missing(columns), cleanup), ", "), there.schema)
		}
		return err
	})
}

// mayNot says what to run.
func (s *Store) mayNot(there found) error {
	return fmt.Errorf("the user may not make the tables in schema %s: GRANT USAGE, CREATE ON SCHEMA %s TO %s; or let a user who may, and who owns those that are there, run connector members once with a URL of its own, then %s",
		there.schema, name(there.schema), s.user(), s.rights())
}

// apply runs the migrations that were not applied yet, each in a transaction; all of them, if what they made is lost: each
// leaves alone what is there.
func (s *Store) apply(ctx context.Context, there found) (err error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*s.pool.Config().ConnConfig)
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()
	if there.noted && (there.lost() || there.version == 0) {
		if err := forget(ctx, db); err != nil {
			return err
		}
	}
	provider, err := provider(db, files)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// forget lets the notes about migrations begin anew, with the entry 0 that goose expects.
func forget(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "DELETE FROM "+versions+" WHERE version_id > 0")
	if err == nil {
		_, err = db.ExecContext(ctx, "INSERT INTO "+versions+" (version_id, is_applied) SELECT 0, TRUE WHERE NOT EXISTS (SELECT FROM "+versions+")")
	}
	return err
}

// provider applies the migrations in files. It has no lock of its own.
func provider(db *sql.DB, files fs.FS) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(versions), goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(slog.New(slog.DiscardHandler)))
}

// name quotes a name in the database.
func name(of string) string { return pgx.Identifier{of}.Sanitize() }

func (s *Store) user() string { return name(s.pool.Config().ConnConfig.User) }

// rights is what gives a user who may not make the tables all that members need.
func (s *Store) rights() string {
	return "GRANT SELECT, INSERT, UPDATE, DELETE ON " + registrations + ", " + lastSeen + " TO " + s.user()
}
