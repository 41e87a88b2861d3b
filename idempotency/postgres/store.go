// Package postgres stores fingerprints in a PostgreSQL database, in the table processed_events: for users who want to
// query them there, or whose windows do not fit into memory. It costs a query and a transaction for each sealed batch,
// and adds a dependency. Its data may be deleted at any time: members fill it again from the Delta table.
//
// goose creates the tables and migrates those of earlier versions. A store runs it at its first use, and again when it
// finds that tables are missing.
package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/classify"
	"sluice/classify/postgres"
	"sluice/idempotency"
	"sluice/secure/pgconfig"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// statementTimeout bounds each statement, so that a server that does not answer counts as a failure.
	statementTimeout = 30 * time.Second
	// connections is the largest number of connections of a store; one more while it migrates. Writers of several
	// tables use them in parallel.
	connections = 4
	// migrateTimeout bounds the migrations, which may build an index on a large table.
	migrateTimeout = 10 * time.Minute
	// chunk is the largest number of fingerprints in one statement.
	chunk = 5000
)

// Retry runs op, repeats it while the error is Transient, and returns the last error. about are attributes for its log
// lines. It must also catch panics of op.
type Retry func(ctx context.Context, op func(context.Context) error, about ...any) error

// Options of a store.
type Options struct {
	// URL is a connection string of libpq, with user and password.
	URL string
	// CAFile and InsecurePlaintext are those of [pgconfig.Options].
	CAFile            string
	InsecurePlaintext bool
	// Retry wraps each request to the database. The layers below Retry never retry.
	Retry Retry
}

// Store implements [idempotency.Store] in a database that members share. Its errors are ErrMoved, or have a class
// derived from the server's SQLSTATE; Retry handles them.
type Store struct {
	pool   *pgxpool.Pool
	tables *postgres.Tables
	retry  Retry
	ready  *atomic.Bool // true once the tables are known to exist
	about  []any        // attributes for the log lines about retries
}

var _ idempotency.Store = (*Store)(nil)

// Open returns a store without connecting to the server. It returns an error for a mistake in the options; the error
// does not quote the URL.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := postgres.Config(pgconfig.Options{URL: o.URL, CAFile: o.CAFile, InsecurePlaintext: o.InsecurePlaintext}, connections, statementTimeout/3)
	if err != nil {
		return nil, err
	}
	return open(ctx, config, o.Retry)
}

func open(ctx context.Context, config *pgxpool.Config, retry Retry) (*Store, error) {
	tables, err := tables()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("fingerprints in Postgres: %w", err)
	}
	return &Store{pool: pool, tables: tables, retry: retry, ready: new(atomic.Bool)}, nil
}

// tables describes the tables of a store. Tables that exist without goose have the columns of the first version. If a
// row has no scope, another program uses the table, and the store refuses it: that program would take the records of
// Sluice for events of its own.
func tables() (*postgres.Tables, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	since := []string{ // the columns of the first version
		"processed_events.event_id", "processed_events.offset", "processed_events.processed_at", "processed_events.scope",
		"processed_events.recorded_at", "processed_scopes.id", "processed_scopes.scope",
	}
	return &postgres.Tables{
		Migrations: files, Latest: 1, Versions: "processed_events_version", Lock: 0x534c5549434531,
		Columns: append([]string{"processed_events.fingerprint", "processed_scopes.next_offset"}, since...), First: since, Unnoted: since,
		Filled: "processed_events.scope", Command: "connector check",
	}, nil
}

// Close ends the connections.
func (s *Store) Close() { s.pool.Close() }

// For implements [idempotency.Store]. The result shares the connections of s, so it is not closed itself.
func (s *Store) For(batch string) idempotency.Store {
	of := *s
	of.about = []any{"batch_id", batch}
	return &of
}

// do runs op with retries, after it has made sure that the tables exist. what names op in errors. If op finds a table
// missing, the next try creates the tables again.
func (s *Store) do(ctx context.Context, what string, op func(context.Context) error) error {
	return s.retry(ctx, func(ctx context.Context) error {
		err := s.prepare(ctx)
		if err == nil {
			err = s.tables.Explained(op(ctx), s.pool)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, idempotency.ErrMoved): // a retry would return ErrMoved again
			return classify.Mark(err, classify.Fenced)
		case postgres.Gone(err):
			s.ready.Store(false)
		}
		return postgres.Classified(fmt.Errorf("%s: %w", what, err))
	}, s.about...)
}

// prepare creates or migrates the tables unless they are known to exist.
func (s *Store) prepare(ctx context.Context) error {
	if s.ready.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	err := s.tables.Prepare(ctx, s.pool)
	if err == nil {
		s.ready.Store(true)
	}
	return err
}

// transaction runs op in a transaction. Each statement is bounded by statementTimeout. The error wraps unsure if the
// transaction may have been committed nevertheless.
func (s *Store) transaction(ctx context.Context, op func(context.Context, pgx.Tx) error) error {
	begin, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tx, err := s.pool.Begin(begin)
	if err != nil {
		return err
	}
	defer func() { // the connection returns to the pool, also after a panic
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout/6)
		defer cancel()
		_ = tx.Rollback(end) // has no effect after a commit; if it fails, pgx closes the connection, and the server rolls back
	}()
	if err := op(ctx, timed{tx}); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := tx.Commit(end); err != nil {
		return unsure{err}
	}
	return nil
}

// unsure is an error of a commit whose outcome is unknown, because the response may not have arrived.
type unsure struct{ error }

func (u unsure) Unwrap() error { return u.error }

// Through implements [idempotency.Store].
func (s *Store) Through(ctx context.Context, scope idempotency.Scope) (through int64, err error) {
	err = s.do(ctx, "read the position", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, statementTimeout)
		defer cancel()
		err := s.pool.QueryRow(ctx, "SELECT next_offset FROM processed_scopes WHERE scope = $1", scope.String()).Scan(&through)
		if errors.Is(err, pgx.ErrNoRows) {
			through, err = 0, nil
		}
		return err
	})
	return through, err
}

// Seen implements [idempotency.Store].
func (s *Store) Seen(ctx context.Context, scope idempotency.Scope, entries iter.Seq[idempotency.Entry]) (map[idempotency.Fingerprint]int64, error) {
	seen := map[idempotency.Fingerprint]int64{}
	for some := range chunked(entries) {
		err := s.do(ctx, "look up", func(ctx context.Context) error { return s.lookUp(ctx, scope, some, seen) })
		if err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// lookUp adds the stored times of some fingerprints to seen. The statement itself resolves the scope: after the
// database was restored, an id in our memory could be that of another scope.
func (s *Store) lookUp(ctx context.Context, scope idempotency.Scope, some columns, seen map[idempotency.Fingerprint]int64) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, `SELECT f.text, e.recorded_at
		FROM processed_scopes s CROSS JOIN unnest($2::text[]) AS f(text) JOIN processed_events e ON e.fingerprint = s.id || '/' || f.text
		WHERE s.scope = $1`, scope.String(), some.texts)
	if err != nil {
		return err
	}
	var text string
	var at int64
	_, err = pgx.ForEachRow(rows, []any{&text, &at}, func() error {
		f, err := idempotency.ParseFingerprint(text)
		seen[f] = at
		return err
	})
	return err
}

// Remember implements [idempotency.Store]. entries are iterated once for each try.
func (s *Store) Remember(ctx context.Context, scope idempotency.Scope, from, next int64, entries iter.Seq[idempotency.Entry]) error {
	lost := false // true if an earlier attempt may have been committed although its response was lost
	return s.do(ctx, "remember", func(ctx context.Context) error {
		err := s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
			id, through, err := locked(ctx, tx, scope)
			switch {
			case err != nil:
				return err
			case lost && from < next && through == next:
				return nil // an earlier attempt was committed, or another member added the same rows
			case through != from:
				return idempotency.ErrMoved
			}
			for some := range chunked(entries) {
				if tx.Conn().PgConn().ParameterStatus("server_encoding") != "UTF8" {
					some.asciiOnly()
				}
				if err := insert(ctx, tx, id, some); err != nil {
					return err
				}
			}
			_, err = tx.Exec(ctx, "UPDATE processed_scopes SET next_offset = $2 WHERE id = $1", id, next)
			return err
		})
		lost = lost || errors.As(err, new(unsure))
		return err
	})
}

// locked returns the id and the position of a scope. It creates the scope if it is new, and locks it until the
// transaction ends, so that no other member can move its position.
func locked(ctx context.Context, tx pgx.Tx, scope idempotency.Scope) (id, through int64, err error) {
	const find = "SELECT id, next_offset FROM processed_scopes WHERE scope = $1 FOR UPDATE"
	err = tx.QueryRow(ctx, find, scope.String()).Scan(&id, &through)
	if errors.Is(err, pgx.ErrNoRows) {
		_, err = tx.Exec(ctx, "INSERT INTO processed_scopes (scope) VALUES ($1) ON CONFLICT DO NOTHING", scope.String())
		if err == nil {
			err = tx.QueryRow(ctx, find, scope.String()).Scan(&id, &through)
		}
	}
	return id, through, err
}

// insert adds rows. Of several rows with one fingerprint it keeps the newest. If the newest row has no producer's id,
// the id that was stored for the fingerprint stays; if there was none, the key of the row serves as its id.
func insert(ctx context.Context, tx pgx.Tx, id int64, some columns) error {
	_, err := tx.Exec(ctx, `INSERT INTO processed_events AS e (fingerprint, event_id, "offset", scope, recorded_at)
		SELECT DISTINCT ON (f.text) $1::bigint || '/' || f.text, coalesce(nullif(f.id, ''), $1::bigint || '/' || f.text), f.row, $1, f.at
		FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[]) AS f(text, row, at, id) ORDER BY f.text, f.at DESC
		ON CONFLICT (fingerprint) DO UPDATE SET event_id = coalesce(nullif(excluded.event_id, excluded.fingerprint), e.event_id, excluded.event_id),
			"offset" = excluded."offset", recorded_at = excluded.recorded_at, processed_at = now()
		WHERE e.recorded_at < excluded.recorded_at`, id, some.texts, some.offsets, some.times, some.ids)
	return err
}

// Sweep implements [idempotency.Store].
func (s *Store) Sweep(ctx context.Context, scope idempotency.Scope, before int64) error {
	return s.forget(ctx, "sweep", `SELECT fingerprint FROM processed_events
		WHERE scope = (SELECT id FROM processed_scopes WHERE scope = $1) AND recorded_at < $2 LIMIT $3`, scope.String(), before, chunk)
}

// Reset implements [idempotency.Store]. It deletes the scope first and its rows afterwards. If it stops in between,
// lookups no longer find the remaining rows, so they do no harm.
func (s *Store) Reset(ctx context.Context, scope idempotency.Scope) error {
	var ids []int64
	err := s.do(ctx, "reset", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, statementTimeout)
		defer cancel()
		var id int64
		err := s.pool.QueryRow(ctx, "DELETE FROM processed_scopes WHERE scope = $1 RETURNING id", scope.String()).Scan(&id)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err == nil:
			ids = append(ids, id)
		}
		return err
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	return s.forget(ctx, "reset", "SELECT fingerprint FROM processed_events WHERE scope = $1 LIMIT $2", ids[0], chunk)
}

// forget deletes the rows whose fingerprints a query returns, at most chunk in one statement, until none is left.
func (s *Store) forget(ctx context.Context, what, query string, args ...any) error {
	for more := true; more; {
		err := s.do(ctx, what, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, statementTimeout)
			defer cancel()
			done, err := s.pool.Exec(ctx, "DELETE FROM processed_events WHERE fingerprint = ANY (ARRAY("+query+"))", args...)
			more = err == nil && done.RowsAffected() == chunk
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Release implements [idempotency.Store]: the rows stay for the next member that works on the scope.
func (s *Store) Release(idempotency.Scope) {}
