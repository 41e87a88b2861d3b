package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"sluice/classify/postgres"
	"sluice/reliability/panics"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	registrations = "consumer_registrations"
	lastSeen      = "consumer_last_seen"
	cleanup       = "cleanup_stale_consumers"
)

// beatLock is the seed of the hash that makes the lock of a member from its id. It is a number that other programs are
// unlikely to use, and differs from that of the lock for migrations.
const beatLock = 0x534c5549434533

// tables describes the tables and functions of the store.
func tables() (*postgres.Tables, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	first := []string{
		registrations + ".stream_name", registrations + ".group_id", registrations + ".consumer_id",
		registrations + ".last_heartbeat", registrations + ".session_timeout_ms",
	}
	unnoted := append(slices.Clip(first),
		registrations+".status", registrations+".status_since", registrations+".last_message_at", registrations+".consumer_lag",
		lastSeen+".stream_name", lastSeen+".group_id", lastSeen+".consumer_id", lastSeen+".last_heartbeat", lastSeen+".session_timeout_ms",
		lastSeen+".status", lastSeen+".status_since", lastSeen+".last_message_at", lastSeen+".consumer_lag",
	)
	columns := append(slices.Clip(unnoted), registrations+".address", lastSeen+".address")
	return &postgres.Tables{
		Migrations: files, Latest: 3, Versions: "consumer_registrations_version", Lock: 0x534c5549434532,
		Columns: columns, First: first, Unnoted: unnoted, Functions: []string{cleanup + "/0", cleanup + "/2"}, Command: "connector members",
	}, nil
}

// preparation is a migration under way. Several callers may wait for it. err is set before done is closed.
type preparation struct {
	done chan struct{}
	err  error
}

// prepare creates or migrates the tables unless they are known to exist. Concurrent callers wait for the same
// migration, each until its ctx ends. The migration itself continues then, so that it completes even if every caller
// has too little time.
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

// work creates or migrates the tables, stores the result in p and s.ready, and closes p.done.
func (s *Store) work(p *preparation) {
	ctx, cancel := context.WithTimeoutCause(s.lasting, migrateTimeout, errSlow)
	defer cancel()
	err := panics.Catch(func() error { // a panic must not leave this goroutine: it would end the process
		return s.tables.Prepare(ctx, s.pool)
	})
	s.ready.Store(err == nil)
	p.err = because(ctx, err)
	s.mu.Lock()
	s.now = nil
	s.mu.Unlock()
	close(p.done)
}
