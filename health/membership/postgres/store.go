// Package postgres keeps registrations of members in a PostgreSQL database, in the table consumer_registrations. The
// function cleanup_stale_consumers() removes those that were not renewed in time. The clock is the server's, always.
//
// The tables come from the migrations in this package. A store applies them at its first call, under a lock, and again
// if a call finds a table missing.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/classify/postgres"
	"sluice/health/membership"
	"sluice/secure/pgconfig"
)

const (
	// callTimeout bounds what one call does at the server, migrateTimeout the migrations before the first call,
	// connectTimeout the opening of a connection.
	callTimeout    = 4 * time.Second
	migrateTimeout = 30 * time.Second
	connectTimeout = 3 * time.Second
	// connections is the largest number of connections of a store; one more while it migrates.
	connections = 2
	// maxStatus is the largest size of a status in bytes. The statuses of Sluice have at most 13 bytes.
	maxStatus = 100
)

// Options of a store.
type Options struct {
	// URL is a connection string of libpq, with user and password. The tables are in its first schema (search_path).
	URL   string
	Scope membership.Scope
	// CAFile and InsecurePlaintext are those of [pgconfig.Options].
	CAFile            string
	InsecurePlaintext bool
}

// Store implements [membership.Store]. Every call is bounded in time, also if its context never ends. An error wraps
// [membership.ErrUnavailable]; that of Members can wrap [membership.ErrForeign] instead. A Store works behind a proxy
// that pools transactions, because it uses no prepared statements and no session locks.
type Store struct {
	pool   *pgxpool.Pool
	tables *postgres.Tables
	scope  membership.Scope
	ready  atomic.Bool // true once the tables are known to exist

	lasting context.Context // a context that ends with Close
	close   context.CancelFunc
	working sync.WaitGroup
	mu      sync.Mutex
	now     *preparation // the migration that runs, nil if none does
}

var _ membership.Store = (*Store)(nil)

// Open returns a store without connecting to the server. It returns an error for a mistake in the options; the error
// does not quote the URL.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := postgres.Config(pgconfig.Options{URL: o.URL, CAFile: o.CAFile, InsecurePlaintext: o.InsecurePlaintext}, connections, connectTimeout)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	s := &Store{scope: o.Scope}
	if s.tables, err = tables(); err == nil {
		s.pool, err = pgxpool.NewWithConfig(ctx, config)
	}
	if err != nil {
		return nil, fmt.Errorf("registrations in Postgres: %w", err)
	}
	s.lasting, s.close = context.WithCancel(context.WithoutCancel(ctx))
	return s, nil
}

// Close implements [membership.Store]. It waits for calls under way, which are bounded.
func (s *Store) Close() error {
	s.mu.Lock()
	s.close() // no work on the tables begins after this
	s.mu.Unlock()
	s.working.Wait()
	s.pool.Close()
	return nil
}

// do runs op after it has made sure that the tables exist. If op finds a table missing, do creates the tables again and
// repeats op once. what names op in errors.
func (s *Store) do(ctx context.Context, what string, op func(context.Context) error) error {
	err := s.try(ctx, op)
	if postgres.Gone(err) {
		s.ready.Store(false)
		err = s.try(ctx, op)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: Postgres: %s: %w", membership.ErrUnavailable, what, postgres.Classified(err))
}

func (s *Store) try(ctx context.Context, op func(context.Context) error) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errSlow)
	defer cancel()
	return because(ctx, s.tables.Explained(op(ctx), s.pool))
}

var errSlow = errors.New("the server did not answer in time")

// because adds errSlow to the error of a call whose own timeout ended it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errSlow) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Beat implements [membership.Store]. fresh is also true if the registration was not renewed in time and no sweep has
// removed it yet. A lock of the transaction orders the heartbeats of one member, so that each sees what the one before
// it wrote.
func (s *Store) Beat(ctx context.Context, b membership.Beat) (fresh bool, err error) {
	var idle, lag *int64
	if b.Idle >= 0 {
		idle = new(b.Idle.Microseconds())
	}
	if b.Lag >= 0 {
		lag = &b.Lag
	}
	var address *string
	if b.Address != "" {
		address = &b.Address
	}
	err = s.do(ctx, "beat", func(ctx context.Context) error {
		var batch pgx.Batch // sends all statements as one transaction in one round trip
		batch.Queue("SELECT pg_advisory_xact_lock(hashtextextended($1, $2))", b.ID, int64(beatLock))
		batch.Queue(beat, s.scope.Pipeline, s.scope.Group, b.ID, b.TTL.Milliseconds(), string(b.Status), idle, lag, address).QueryRow(func(row pgx.Row) error {
			return row.Scan(&fresh)
		})
		return s.pool.SendBatch(ctx, &batch).Close()
	})
	return fresh, err
}

const beat = `
WITH moment AS (
	SELECT clock_timestamp() AS now
), standing AS (
	SELECT FROM consumer_registrations, moment
	WHERE stream_name = $1 AND group_id = $2 AND consumer_id = $3
		AND last_heartbeat >= now - (session_timeout_ms || ' milliseconds')::INTERVAL
), before AS (
	SELECT status_since FROM consumer_last_seen WHERE stream_name = $1 AND group_id = $2 AND consumer_id = $3 AND status = $5
), registered AS (
	INSERT INTO consumer_registrations (stream_name, group_id, consumer_id, last_heartbeat, session_timeout_ms,
		status, status_since, last_message_at, consumer_lag, address)
	SELECT $1, $2, $3, now, $4::BIGINT, $5, coalesce((SELECT status_since FROM before), now),
		now - $6::BIGINT * INTERVAL '1 microsecond', $7::BIGINT, $8::TEXT
	FROM moment
	ON CONFLICT (stream_name, group_id, consumer_id) DO UPDATE SET
		last_heartbeat = excluded.last_heartbeat, session_timeout_ms = excluded.session_timeout_ms, status = excluded.status,
		status_since = excluded.status_since, last_message_at = excluded.last_message_at, consumer_lag = excluded.consumer_lag,
		address = excluded.address
	RETURNING stream_name, group_id, consumer_id, last_heartbeat, session_timeout_ms,
		status, status_since, last_message_at, consumer_lag, address
), seen AS (
	INSERT INTO consumer_last_seen (stream_name, group_id, consumer_id, last_heartbeat, session_timeout_ms,
		status, status_since, last_message_at, consumer_lag, address)
	SELECT * FROM registered
	ON CONFLICT (stream_name, group_id, consumer_id) DO UPDATE SET
		last_heartbeat = excluded.last_heartbeat, session_timeout_ms = excluded.session_timeout_ms, status = excluded.status,
		status_since = excluded.status_since, last_message_at = excluded.last_message_at, consumer_lag = excluded.consumer_lag,
		address = excluded.address
)
SELECT NOT EXISTS (SELECT FROM standing)`

// Leave implements [membership.Store].
func (s *Store) Leave(ctx context.Context, id string) error {
	return s.do(ctx, "leave", func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `
			WITH seen AS (DELETE FROM consumer_last_seen WHERE stream_name = $1 AND group_id = $2 AND consumer_id = $3)
			DELETE FROM consumer_registrations WHERE stream_name = $1 AND group_id = $2 AND consumer_id = $3`,
			s.scope.Pipeline, s.scope.Group, id)
		return err
	})
}

// Members implements [membership.Store].
func (s *Store) Members(ctx context.Context) (members []membership.Member, err error) {
	bad := 0 // addresses that cannot be used
	err = s.do(ctx, "list", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, list, s.scope.Pipeline, s.scope.Group, membership.MaxID, maxStatus, membership.MaxMembers, membership.MaxAddress)
		if err != nil {
			return err
		}
		bad = 0
		members, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (membership.Member, error) {
			m, ok, err := member(row)
			if !ok {
				bad++
			}
			return m, err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	all := len(members)
	if members = slices.DeleteFunc(members, tooLarge); len(members) < all {
		err = fmt.Errorf("%w: %d members in %s and %s have an id of more than %d bytes or a status of more than %d", membership.ErrForeign,
			all-len(members), registrations, lastSeen, membership.MaxID, maxStatus)
	}
	if bad > 0 && err == nil {
		err = fmt.Errorf("%w: the address of %d members in %s and %s is not http://host:port", membership.ErrForeign, bad, registrations, lastSeen)
	}
	return members, err
}

// tooLarge reports whether the query left out the id or the status of a member because it is too long.
func tooLarge(m membership.Member) bool { return m.ID == "" || m.Status == "" }

const list = `
WITH moment AS (
	SELECT clock_timestamp() AS now
), known AS (
	SELECT consumer_id, status, session_timeout_ms, consumer_lag, last_heartbeat, status_since, last_message_at, address,
		last_heartbeat >= now - (session_timeout_ms || ' milliseconds')::INTERVAL AS standing
	FROM consumer_registrations, moment WHERE stream_name = $1 AND group_id = $2
	UNION ALL
	SELECT consumer_id, status, session_timeout_ms, consumer_lag, last_heartbeat, status_since, last_message_at, address, FALSE
	FROM consumer_last_seen l WHERE stream_name = $1 AND group_id = $2 AND NOT EXISTS (
		SELECT FROM consumer_registrations r WHERE (r.stream_name, r.group_id, r.consumer_id) = (l.stream_name, l.group_id, l.consumer_id))
)
SELECT id, said, session_timeout_ms, coalesce(consumer_lag, -1), standing,
	(extract(epoch FROM now - last_heartbeat) * 1000000)::BIGINT,
	(extract(epoch FROM now - status_since) * 1000000)::BIGINT,
	(extract(epoch FROM now - last_message_at) * 1000000)::BIGINT,
	CASE WHEN octet_length(address) <= $6 THEN address ELSE '' END, address IS NULL
FROM (
	SELECT CASE WHEN octet_length(consumer_id) <= $3 THEN consumer_id ELSE '' END AS id, CASE WHEN octet_length(status) <= $4 THEN status ELSE '' END AS said, *
	FROM known ORDER BY last_heartbeat DESC LIMIT $5
) AS latest, moment ORDER BY id COLLATE "C"`

// member reads a row of the list. ok is false if its address cannot be used; the member is then without it.
func member(row pgx.CollectableRow) (m membership.Member, ok bool, err error) {
	var status string
	var ttl, age, inStatus int64
	var idle *int64
	var none bool // the column is NULL: no address, or the member is of an earlier version
	if err := row.Scan(&m.ID, &status, &ttl, &m.Lag, &m.Registered, &age, &inStatus, &idle, &m.Address, &none); err != nil {
		return m, true, err
	}
	m.Status, m.TTL = membership.Status(status), time.Duration(ttl)*time.Millisecond
	m.Age, m.InStatus, m.Idle = since(age), since(inStatus), -1
	if idle != nil {
		m.Idle = since(*idle)
	}
	if ok = none || membership.CheckAddress(m.Address) == nil; !ok {
		m.Address = ""
	}
	return m, ok, nil
}

// since converts an age in microseconds. A negative age becomes 0: the server's clock may have been set back.
func since(microseconds int64) time.Duration {
	return max(0, time.Duration(microseconds)*time.Microsecond)
}

// Sweep implements [membership.Store]. It calls the SQL function cleanup_stale_consumers for its scope. Operators can
// call that function without arguments, for all scopes at once.
func (s *Store) Sweep(ctx context.Context, forget time.Duration) (swept int, err error) {
	err = s.do(ctx, "sweep", func(ctx context.Context) error {
		if err := s.pool.QueryRow(ctx, "SELECT cleanup_stale_consumers($1, $2)", s.scope.Pipeline, s.scope.Group).Scan(&swept); err != nil {
			return err
		}
		_, err := s.pool.Exec(ctx, `
			DELETE FROM consumer_last_seen l WHERE stream_name = $1 AND group_id = $2
				AND last_heartbeat <= clock_timestamp() - $3::BIGINT * INTERVAL '1 microsecond' AND NOT EXISTS (
				SELECT FROM consumer_registrations r WHERE (r.stream_name, r.group_id, r.consumer_id) = (l.stream_name, l.group_id, l.consumer_id))`,
			s.scope.Pipeline, s.scope.Group, forget.Microseconds())
		return err
	})
	return swept, err
}
