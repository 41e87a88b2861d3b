package postgres

import (
	"cmp"
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

// lockTimeout bounds how long a member waits for the migration lock, and how long reading the state of the tables may
// take.
const lockTimeout = 30 * time.Second

// Tables describes the tables of a store and the migrations that create them. Each migration leaves alone what exists
// already. So all migrations may run again over existing tables, even if goose has no record of them.
type Tables struct {
	Migrations fs.FS  // the migrations, in files 00001_name.sql and so on
	Latest     int64  // number of the last migration
	Versions   string // table where goose records the applied migrations; its name never changes
	Lock       int64  // key of the advisory lock for migrations: a number that other programs are unlikely to use

	Columns   []string // all columns that exist after the last migration, as table.column
	First     []string // those of Columns that exist after the first migration
	Unnoted   []string // those of Columns that a table of Sluice has even if goose has recorded no migration of it
	Functions []string // all functions that members call, each with the number of its arguments: "name/2"
	// Filled is a column, as table.column, that is never NULL in a row that Sluice wrote. A row of another program has
	// NULL there. Filled is "" if there is no such column.
	Filled string
	// Rights are the rights on the tables that members need, "" for SELECT, INSERT, UPDATE, DELETE.
	Rights string
	// Command is the command line that creates the tables: a user with the rights to do so runs it once.
	Command string
}

// found is the state of some tables in the database.
type found struct {
	schema  string   // the schema where the tables are, or where they would be created
	create  bool     // true if the user may create tables in the schema
	owned   bool     // true if the user may alter the tables that exist
	tables  []string // names of the tables that exist
	columns []string // columns of those tables, as table.column
	missing []string // functions of Tables that do not exist
	noted   bool     // true if the table of applied migrations exists
	version int64    // number of the last applied migration: 0 for none, -1 if the user may not read it
}

// lacks returns those of the given columns that do not exist in the database.
func (f found) lacks(of []string) []string {
	return slices.DeleteFunc(slices.Clone(of), func(c string) bool { return slices.Contains(f.columns, c) })
}

// whole reports whether a member can work with the tables as they are: all columns and functions exist.
func (t *Tables) whole(f found) bool { return len(f.lacks(t.Columns)) == 0 && len(f.missing) == 0 }

// current reports whether no migration is needed or possible: the tables are whole, and one of three cases holds.
// Either the last migration is recorded as applied. Or the user may not read that record. Or there is no record, and
// the user may not create tables or may not alter these.
func (t *Tables) current(f found) bool {
	return t.whole(f) && (f.version < 0 || f.version >= t.Latest || !f.noted && (!f.create || !f.owned))
}

// lost reports whether columns or functions are missing that an applied migration had created.
func (t *Tables) lost(f found) bool {
	return f.version >= t.Latest && !t.whole(f) || f.version > 0 && (len(f.lacks(t.First)) > 0 || len(f.missing) > 0)
}

// foreign returns an error if another program created a table with the name of one of Sluice's: that table lacks a
// column that every version of Sluice's table has. Otherwise it returns nil.
func (t *Tables) foreign(f found) error {
	want := t.Unnoted
	if f.version > 0 {
		want = t.First // a later migration adds the other columns
	}
	lacking := slices.DeleteFunc(f.lacks(want), func(c string) bool {
		table, _, _ := strings.Cut(c, ".")
		return !slices.Contains(f.tables, table)
	})
	if len(lacking) == 0 {
		return nil
	}
	table, column, _ := strings.Cut(lacking[0], ".")
	return fatal("table %s of schema %s belongs to another program: it has no column %s: %s", table, f.schema, column, ownSchema)
}

// ownSchema is the advice to the operator if another program uses the tables.
const ownSchema = "give the connector a schema of its own, by search_path in the URL (postgres://…&search_path=sluice)"

// names returns the names of the tables, without duplicates.
func (t *Tables) names() (names []string) {
	for _, c := range t.Columns {
		if table, _, _ := strings.Cut(c, "."); !slices.Contains(names, table) {
			names = append(names, table)
		}
	}
	return names
}

// Prepare creates the tables or migrates them to this version. ctx bounds the time, and migrating large tables may take
// long. Members that start together take turns. If all tables exist, the user needs no right to create any. Errors
// that need an operator are Fatal and say what to run.
func (t *Tables) Prepare(ctx context.Context, pool *pgxpool.Pool) error {
	there, err := t.read(ctx, pool)
	if err != nil || t.current(there) {
		return err
	}
	return t.migrate(ctx, pool)
}

// rower runs a query that returns one row; a pool and a transaction both do.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// read returns the state of the tables in the first existing schema of search_path. Without such a schema it returns a
// Fatal error.
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
		return f, fmt.Errorf("read which tables exist: %w", err)
	case f.schema == "":
		return f, fatal("no schema: search_path names no schema that exists and that the user may use (CREATE SCHEMA, GRANT USAGE)")
	case readable == nil:
		return f, nil
	}
	if f.noted = true; !*readable {
		f.version = -1
		return f, nil
	}
	if err := db.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+t.Versions).Scan(&f.version); err != nil {
		return f, fmt.Errorf("read the version of the tables: %w", err)
	}
	return f, nil
}

// migrate creates the tables or migrates them to this version. Meanwhile a separate transaction holds the migration
// lock. The lock belongs to that transaction, not to a session. So it works behind a proxy that pools transactions, and
// it ends when the connection breaks.
func (t *Tables) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := t.lock(ctx, tx); err != nil {
			return fmt.Errorf("wait for another member to migrate the tables: %w", err)
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
			if code(err) == insufficientPrivilege { // another user owns the tables, and an earlier version made them
				return fmt.Errorf("%w: %w", t.mayNot(pool, there), err)
			}
			return fmt.Errorf("migrate the tables: %w", err)
		}
		if there, err = t.read(ctx, tx); err == nil && !t.whole(there) {
			err = fatal("migrate the tables: schema %[2]s still lacks %[1]s after all migrations",
				strings.Join(append(there.lacks(t.Columns), there.missing...), ", "), there.schema)
		}
		return err
	})
}

// undone runs op in a nested transaction, and then rolls it back. The rollback releases the locks that op took on the
// tables, so that migrations can alter them.
func undone(ctx context.Context, tx pgx.Tx, op func(part pgx.Tx) error) error {
	part, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(op(part), part.Rollback(ctx))
}

// lock takes the migration lock and waits at most lockTimeout for it.
func (t *Tables) lock(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", t.Lock)
	return err
}

// ours returns a Fatal error if the tables are not Sluice's: another program created them or writes to them.
func (t *Tables) ours(ctx context.Context, tx pgx.Tx, there found) error {
	if err := t.foreign(there); err != nil || !slices.Contains(there.columns, t.Filled) {
		return err
	}
	table, column, _ := strings.Cut(t.Filled, ".")
	var shared bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+name(table)+" WHERE "+name(column)+" IS NULL)").Scan(&shared); err != nil {
		return fmt.Errorf("check table %s for rows of another program: %w", table, err)
	}
	if shared {
		return fatal("another program uses the table %s of schema %s: %s", table, there.schema, ownSchema)
	}
	return nil
}

// apply runs the missing migrations, each in a transaction. If columns or functions of an applied migration were lost,
// it runs all migrations.
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

// forget deletes the records of applied migrations and leaves the entry 0 that goose expects.
func (t *Tables) forget(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "DELETE FROM "+t.Versions+" WHERE version_id > 0") //nolint:gosec // the name is a constant of the store
	if err == nil {
		_, err = db.ExecContext(ctx, "INSERT INTO "+t.Versions+" (version_id, is_applied) SELECT 0, TRUE WHERE NOT EXISTS (SELECT FROM "+t.Versions+")") //nolint:gosec // the name is a constant of the store
	}
	return err
}

// provider returns the goose provider that applies the migrations. It takes no lock: migrate holds it.
func (t *Tables) provider(db *sql.DB) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, db, t.Migrations, goose.WithTableName(t.Versions), goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(slog.New(slog.DiscardHandler)))
}

// mayNot returns the error for a user who may not create the tables. It names the statements and the command to run.
func (t *Tables) mayNot(pool *pgxpool.Pool, there found) error {
	return fatal("the user may not create the tables in schema %s: GRANT USAGE, CREATE ON SCHEMA %s TO %s; or run %s once with the URL of a user who may create tables and owns the existing ones, then %s",
		there.schema, name(there.schema), user(pool), t.Command, t.rights(pool))
}

// Explained adds the statement to run to an error that says the user may not use the tables. Other errors stay as they
// are.
func (t *Tables) Explained(err error, pool *pgxpool.Pool) error {
	if code(err) != insufficientPrivilege {
		return err
	}
	return fmt.Errorf("the user may not use the tables: %s: %w", t.rights(pool), err)
}

// rights returns the GRANT statement that gives the pool's user all rights on the tables that members need.
func (t *Tables) rights(pool *pgxpool.Pool) string {
	return "GRANT " + cmp.Or(t.Rights, "SELECT, INSERT, UPDATE, DELETE") + " ON " + strings.Join(t.names(), ", ") + " TO " + user(pool)
}

// user returns the quoted name of the pool's user.
func user(pool *pgxpool.Pool) string { return name(pool.Config().ConnConfig.User) }

// name quotes an identifier for SQL.
func name(of string) string { return pgx.Identifier{of}.Sanitize() }

// fatal returns an error that is marked [classify.Fatal].
func fatal(format string, args ...any) error {
	return classify.Mark(fmt.Errorf(format, args...), classify.Fatal)
}
