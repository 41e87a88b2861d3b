// Package postgres keeps copies of the operations log in a PostgreSQL database, in the table audit_log. A user with the
// rights to select and insert is enough, so that nothing of Sluice can change a copy.
package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/classify/postgres"
	"sluice/secure/pgconfig"
	"sluice/sink/opslog"
	"sluice/sink/opslog/mirror"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// callTimeout bounds one call, migrateTimeout the creation of the table, connectTimeout the opening of a connection.
	callTimeout    = 10 * time.Second
	migrateTimeout = 30 * time.Second
	connectTimeout = 3 * time.Second
	// connections is the largest number of connections; one more while the table is created.
	connections = 1
	// copyLock seeds the lock under which members add copies. It is a number that no other program is likely to use, and
	// not that of the migrations.
	copyLock = 0x534c5549434535
)

// Options of a [Store].
type Options struct {
	// URL is a connection string of libpq, with user and password. The table is in its first schema (search_path).
	URL      string
	Pipeline string
	// CAFile and InsecurePlaintext are those of [pgconfig.Options].
	CAFile            string
	InsecurePlaintext bool
}

// Store implements [mirror.Place]. It uses no prepared statements and no locks of a session, so it works behind a proxy that
// pools transactions.
type Store struct {
	pool     *pgxpool.Pool
	tables   *postgres.Tables
	pipeline string
	ready    bool // the table exists
}

var _ mirror.Place = (*Store)(nil)

// Open returns a store. Nothing is connected yet: the error is a mistake in the URL, which it does not quote.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := postgres.Config(pgconfig.Options{URL: o.URL, CAFile: o.CAFile, InsecurePlaintext: o.InsecurePlaintext}, connections, connectTimeout)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	s := &Store{pipeline: plain(o.Pipeline)}
	if s.tables, err = tables(); err == nil {
		s.pool, err = pgxpool.NewWithConfig(ctx, config)
	}
	if err != nil {
		return nil, fmt.Errorf("copies of the operations log in Postgres: %w", err)
	}
	return s, nil
}

// tables describes the table of the store.
func tables() (*postgres.Tables, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	var columns []string
	for _, c := range []string{"pipeline", "seq", "id", "prev", "hash", "at", "operator", "host", "kind", "reason", "body", "copied_at"} {
		columns = append(columns, "audit_log."+c)
	}
	return &postgres.Tables{
		Migrations: files, Latest: 1, Versions: "audit_log_version", Lock: 0x534c5549434534,
		Columns: columns, First: columns, Unnoted: columns, Rights: "SELECT, INSERT", Command: "connector check",
	}, nil
}

// Close implements [mirror.Place].
func (s *Store) Close() { s.pool.Close() }

// do runs op once the table exists. If op finds it missing, do creates it again and repeats op once. what names op in
// errors.
func (s *Store) do(ctx context.Context, what string, op func(context.Context) error) error {
	err := s.try(ctx, op)
	if postgres.Gone(err) {
		s.ready = false
		err = s.try(ctx, op)
	}
	if err == nil || errors.Is(err, mirror.ErrMoved) {
		return err
	}
	return fmt.Errorf("copies of the operations log in Postgres: %s: %w", what, postgres.Classified(err))
}

func (s *Store) try(ctx context.Context, op func(context.Context) error) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.tables.Explained(op(ctx), s.pool)
}

// prepare creates the table, unless it is known to exist.
func (s *Store) prepare(ctx context.Context) error {
	if s.ready {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	err := s.tables.Prepare(ctx, s.pool)
	s.ready = err == nil
	return err
}

// Newest implements [mirror.Place].
func (s *Store) Newest(ctx context.Context, upTo int64) (h opslog.Head, err error) {
	err = s.do(ctx, "read the newest copy of an operation", func(ctx context.Context) error {
		h, err = s.newest(ctx, s.pool, upTo)
		return err
	})
	return h, err
}

// rower runs a query that returns one row: a pool or a transaction.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (s *Store) newest(ctx context.Context, db rower, upTo int64) (h opslog.Head, err error) {
	err = db.QueryRow(ctx, "SELECT seq, hash FROM audit_log WHERE pipeline = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1", s.pipeline, upTo).Scan(&h.Seq, &h.Hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return opslog.Head{}, nil
	}
	return h, err
}

// Add implements [mirror.Place]. A lock of the transaction lets one member add at a time.
func (s *Store) Add(ctx context.Context, after opslog.Head, entries []opslog.Entry) error {
	return s.do(ctx, "copy operations", func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", s.pipeline, int64(copyLock)); err != nil {
				return err
			}
			const last = 1<<63 - 1
			newest, err := s.newest(ctx, tx, last)
			if err != nil {
				return err
			}
			if newest != after {
				return mirror.ErrMoved
			}
			text := plain
			if tx.Conn().PgConn().ParameterStatus("server_encoding") != "UTF8" {
				text = ascii
			}
			var batch pgx.Batch
			for _, e := range entries {
				if e.At.Year() < 1 { // Postgres has no year 0
					e.At = time.Time{}
				}
				batch.Queue(`INSERT INTO audit_log (pipeline, seq, id, prev, hash, at, operator, host, kind, reason, body)
					VALUES ($1, $2, $3::text::uuid, $4, $5, $6, $7, $8, $9, $10, $11::text::json)`,
					s.pipeline, e.Seq, e.ID, e.Prev, e.Hash(), e.At, text(e.Operator), text(e.Host), text(string(e.Kind)), text(e.Reason), asciiJSON(e.Body))
			}
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
}

// plain replaces what a text of Postgres cannot hold: NUL, and bytes that are not UTF-8.
func plain(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// ascii escapes what a database with another encoding than UTF-8 may not hold.
func ascii(s string) string {
	quoted := strconv.QuoteToASCII(plain(s))
	return quoted[1 : len(quoted)-1]
}

// asciiJSON escapes the characters of JSON that are not ASCII, so that a database of any encoding takes it.
func asciiJSON(body []byte) string {
	var b strings.Builder
	for _, c := range strings.ToValidUTF8(string(body), "\uFFFD") {
		switch {
		case c < 0x80:
			b.WriteRune(c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			c -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		}
	}
	return b.String()
}
