package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"sluice/classify"
)

// lockTimeout bounds how long a member waits for another one that makes the tables.
const lockTimeout = 30 * time.Second

// Tables describes the tables of a store and the migrations that make them. Each migration leaves alone what is there, so that
// all of them may run again over tables that an earlier version made, with or without goose.
type Tables struct {
	Migrations fs.FS  // with 00001_name.sql and so on
	Latest     int64  // the number of the last migration
	Versions   string // the table where goose notes which migrations were applied; never renamed
	Lock       int64  // the advisory lock under which they are applied; any number that no other program is likely to use

	Columns   []string // that the last migration leaves, as table.column
	First     []string // of these, those that the first migration makes
	Unnoted   []string // those that tables of ours have if goose has not noted them
	Functions []string // that members call, each with the number of its arguments: "name/2"
	// Filled is a column, as table.column, that no row of ours leaves NULL, so that rows of another program in our table
	// can be recognised. "" for none.
	Filled string
	// Command is the command line that a user with the rights to create tables runs once.
	Command string
}

// found is the state of some tables in the database.
type found struct {
	schema  string   // where they are, or would be made
	create  bool     // we may make tables there
	owned   bool     // those that are there are ours to change
	tables  []string // with our names
	columns []string // of these, as table.column
	missing []string // functions that are not there
	noted   bool     // goose has noted migrations
	version int64    // of the last migration that was applied: 0 none, -1 not for us to see
}

// lacks returns the columns that are not there.
func (f found) lacks(of []string) []string {
	return slices.DeleteFunc(slices.Clone(of), func(c string) bool { return slices.Contains(f.columns, c) })
}

// whole reports whether a member can work with the tables as they are.
func (t *Tables) whole(f found) bool { return len(f.lacks(t.Columns)) == 0 && len(f.missing) == 0 }

// current reports whether no migration is needed. One that we may not see is not ours to apply: what is there counts. So do
// tables without notes that are not ours to change.
func (t *Tables) current(f found) bool {
	return t.whole(f) && (f.version < 0 || f.version >= t.Latest || !f.noted && (!f.create || !f.owned))
}

// lost reports whether something is gone that migrations had made.
func (t *Tables) lost(f found) bool {
	return f.version >= t.Latest && !t.whole(f) || f.version > 0 && (len(f.lacks(t.First)) > 0 || len(f.missing) > 0)
}

// foreign returns an error if a table of ours was made by another program: it lacks what each of our versions has.
func (t *Tables) foreign(f found) error {
	want := t.Unnoted
	if f.version > 0 {
		want = t.First // a later migration adds the others
	}
	lacking := slices.DeleteFunc(f.lacks(want), func(c string) bool {
		table, _, _ := strings.Cut(c, ".")
		return !slices.Contains(f.tables, table)
	})
	if len(lacking) == 0 {
		return nil
	}
	table, column, _ := strings.Cut(lacking[0], ".")
	return fatal("table %s of schema %s is not ours, it has no column %s: %s", table, f.schema, column, ownSchema)
}

// ownSchema is what to do about tables of another program.
const ownSchema = "give the connector a schema of its own, by search_path in the URL (postgres://…&search_path=sluice)"

// names returns the names of the tables.
func (t *Tables) names() (names []string) {
	for _, c := range t.Columns {
		if table, _, _ := strings.Cut(c, "."); !slices.Contains(names, table) {
			names = append(names, table)
		}
	}
	return names
}

// Prepare makes sure that the tables are there and current; the caller bounds the time, and migrations of large tables take
// theirs. Members that start together do so one after the other. Where all tables are there, a user who may not make any can
// work with them. Errors that need a person are Fatal, and say what to run.
func (t *Tables) Prepare(ctx context.Context, pool *pgxpool.Pool) error {
	there, err := t.read(ctx, pool)
	if err != nil || t.current(there) {
		return err
	}
	return t.migrate(ctx, pool)
}

// rower asks for a row: a pool or a transaction.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// read reads the state of the tables, in the schema that statements without a schema would use.
func (t *Tables) read(ctx context.Context, db rower) (f found, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	var readable *bool
	err = db.QueryRow(ctx, `
		SELECT coalesce(current_schema()::TEXT, ''), coalesce(has_schema_privilege(n.oid, 'CREATE'), FALSE),
			coalesce((SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class WHERE relnamespace = n.oid AND relname = ANY ($1)), TRUE),
			ARRAY(SELECT relname::TEXT FROM pg_class WHERE relnamespace = n.oid AND relname = ANY ($1)),
			ARRAY(SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
				WHERE c.relnamespace = n.oid AND c.relname = ANY ($1) AND a.attnum > 0 AND NOT a.attisdropped),
			ARRAY(SELECT unnest($2::TEXT[]) EXCEPT SELECT proname || '/' || pronargs FROM pg_proc WHERE pronamespace = n.oid),
			(SELECT has_table_privilege(oid, 'SELECT') FROM pg_class WHERE relnamespace = n.oid AND relname = $3)
		FROM (VALUES (1)) AS one LEFT JOIN pg_namespace n ON nspname = current_schema()`,
		t.names(), t.Functions, t.Versions).Scan(&f.schema, &f.create, &f.owned, &f.tables, &f.columns, &f.missing, &readable)
	switch {
	case err != nil:
		return f, fmt.Errorf("look for the tables: %w", err)
	case f.schema == "":
		return f, fatal("no schema: search_path names none that is there and that the user may use (CREATE SCHEMA, GRANT USAGE)")
	case readable == nil:
		return f, nil
	}
	if f.noted = true; !*readable {
		f.version = -1
		return f, nil
	}
	if err := db.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+t.Versions).Scan(&f.version); err != nil {
		return f, fmt.Errorf("look for the version of the tables: %w", err)
	}
	return f, nil
}

// migrate makes the tables, or brings them up to this version, under a lock of a transaction that does nothing else: a proxy
// that pools transactions keeps it, and it ends with its connection.
func (t *Tables) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := t.lock(ctx, tx); err != nil {
			return fmt.Errorf("wait for others that make the tables: %w", err)
		}
		var there found
		err := undone(ctx, tx, func(part pgx.Tx) (err error) {
			if there, err = t.read(ctx, part); err != nil || t.current(there) {
				return err
			}
			return t.ours(ctx, part, there)
		})
		if err != nil || t.current(there) {
			return err
		}
		if !there.create {
			return t.mayNot(pool, there)
		}
		if err := t.apply(ctx, pool, there); err != nil {
			if code(err) == insufficientPrivilege { // another user's tables, of an earlier version
				return fmt.Errorf("%w: %w", t.mayNot(pool, there), err)
			}
			return fmt.Errorf("make the tables: %w", err)
		}
		if there, err = t.read(ctx, tx); err == nil && !t.whole(there) {
			err = fatal("make the tables: %s are missing in schema %s after all migrations",
				strings.Join(append(there.lacks(t.Columns), there.missing...), ", "), there.schema)
		}
		return err
	})
}

// undone runs op in a part of a transaction and undoes it: locks on tables that are about to be changed end with the part.
func undone(ctx context.Context, tx pgx.Tx, op func(part pgx.Tx) error) error {
	part, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(op(part), part.Rollback(ctx))
}

// lock waits for the lock of the migrations.
func (t *Tables) lock(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", t.Lock)
	return err
}

// ours returns an error if another program uses the tables that are there.
func (t *Tables) ours(ctx context.Context, tx pgx.Tx, there found) error {
	if err := t.foreign(there); err != nil || !slices.Contains(there.columns, t.Filled) {
		return err
	}
	table, column, _ := strings.Cut(t.Filled, ".")
	var shared bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+name(table)+" WHERE "+name(column)+" IS NULL)").Scan(&shared); err != nil {
		return fmt.Errorf("look whose rows the tables have: %w", err)
	}
	if shared {
		return fatal("another program uses the table %s of schema %s: %s", table, there.schema, ownSchema)
	}
	return nil
}

// apply runs the migrations that were not applied yet, each in a transaction; all of them, if what they made is lost.
func (t *Tables) apply(ctx context.Context, pool *pgxpool.Pool, there found) (err error) {
	db := stdlib.OpenDB(*pool.Config().ConnConfig)
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()
	if there.noted && (t.lost(there) || there.version == 0) {
		if err := t.forget(ctx, db); err != nil {
			return err
		}
	}
	provider, err := t.provider(db)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// forget makes the notes about migrations begin anew, with the entry 0 that goose expects.
func (t *Tables) forget(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "DELETE FROM "+t.Versions+" WHERE version_id > 0") //nolint:gosec // a name of ours
	if err == nil {
		_, err = db.ExecContext(ctx, "INSERT INTO "+t.Versions+" (version_id, is_applied) SELECT 0, TRUE WHERE NOT EXISTS (SELECT FROM "+t.Versions+")") //nolint:gosec // a name of ours
	}
	return err
}

// provider applies migrations. It has no lock of its own.
func (t *Tables) provider(db *sql.DB) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, db, t.Migrations, goose.WithTableName(t.Versions), goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(slog.New(slog.DiscardHandler)))
}

// mayNot says what to run.
func (t *Tables) mayNot(pool *pgxpool.Pool, there found) error {
	return fatal("the user may not make the tables in schema %s: GRANT USAGE, CREATE ON SCHEMA %s TO %s; or let a user who may, and who owns those that are there, run %s once with a URL of its own, then %s",
		there.schema, name(there.schema), user(pool), t.Command, t.rights(pool))
}

// Explained adds to an error what to run, if the user may not use the tables.
func (t *Tables) Explained(err error, pool *pgxpool.Pool) error {
	if code(err) != insufficientPrivilege {
		return err
	}
	return fmt.Errorf("the user may not use the tables: %s: %w", t.rights(pool), err)
}

// rights is what gives a user who may not make the tables all that members need.
func (t *Tables) rights(pool *pgxpool.Pool) string {
	return "GRANT SELECT, INSERT, UPDATE, DELETE ON " + strings.Join(t.names(), ", ") + " TO " + user(pool)
}

func user(pool *pgxpool.Pool) string { return name(pool.Config().ConnConfig.User) }

// name quotes a name in the database.
func name(of string) string { return pgx.Identifier{of}.Sanitize() }

func fatal(format string, args ...any) error {
	return classify.Mark(fmt.Errorf(format, args...), classify.Fatal)
}
