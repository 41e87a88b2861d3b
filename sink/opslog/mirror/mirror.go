// Package mirror copies the entries of the operations log to another place, such as a database, for people and programs
// that look there. Nothing depends on the copy, and nothing waits for it. A place that was down gets the missing copies
// later.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/reliability"
	"sluice/reliability/panics"
	"sluice/sink/opslog"
)

// Place keeps copies of the entries of one pipeline. A call ends with ctx and is bounded in time. A Place is used by
// one goroutine at a time.
type Place interface {
	// Newest returns the newest copy up to a seq, the zero Head without one.
	Newest(ctx context.Context, upTo int64) (opslog.Head, error)
	// Add adds copies of entries, which follow each other and the copy of after. If the newest copy is another one, it
	// adds none and returns an error that wraps [ErrMoved]. After any other error all of them or none may be there.
	Add(ctx context.Context, after opslog.Head, entries []opslog.Entry) error
	// Close ends the connections.
	Close()
}

// ErrMoved means that another member has added copies meanwhile.
var ErrMoved = errors.New("another member added copies of operations")

// diverged returns the error for a log that differs from its copies. seq is the first entry that is known to differ.
func diverged(seq int64) error {
	return fmt.Errorf("the copy of operation %d is not the one in the operations log: one of them was rewritten; run connector audit verify, and keep both", seq)
}

// Log is the operations log, as an [opslog.Follower] with its [opslog.Log] provides it.
type Log interface {
	// State returns the newest verified state, nil before there is one.
	State() *opslog.State
	// Changed returns a channel that is closed once there is a newer state.
	Changed() <-chan struct{}
	// Entries yields the entries from a seq on, in order.
	Entries(ctx context.Context, from int64) iter.Seq2[opslog.Entry, error]
}

const (
	// maxEntries and maxBytes bound what one Add adds. An entry has one MiB at most.
	maxEntries = 500
	maxBytes   = 4 << 20
	// recheck is the longest time between two checks of the copies at the place. They may get lost.
	recheck = time.Minute
)

// Config of a [Mirror].
type Config struct {
	Log Log
	// Open opens the place. It is called again after a failure, so that new credentials take effect.
	Open       func(ctx context.Context) (Place, error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Mirror copies the operations log to a place, each entry once and in order. Several members may copy to the same
// place.
type Mirror struct {
	Config
	place   Place // nil while none is open
	failing reliability.FailureLog
	panics  panics.Seen

	copied, failures prometheus.Counter

	newest atomic.Int64 // seq of the newest copy, -1 while unknown
}

// New returns a mirror that does nothing before Run.
func New(c Config) (*Mirror, error) {
	m := &Mirror{
		Config: c,
		copied: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_audit_mirror_entries_total", Help: "Entries of the operations log that this member copied to ops.mirror_url_file.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_audit_mirror_failures_total", Help: "Failed attempts of this member to copy the operations log.",
		}),
	}
	m.newest.Store(-1)
	behind := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_audit_mirror_behind_entries", Help: "Entries of the operations log without a copy, as far as this member knows; -1 before it knows.",
	}, m.behind)
	for _, collector := range []prometheus.Collector{m.copied, m.failures, behind} {
		if err := c.Registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("metrics of the mirror: %w", err)
		}
	}
	return m, nil
}

// behind returns the number of verified entries that have no copy, -1 while the member does not know it.
func (m *Mirror) behind() float64 {
	state := m.Log.State()
	newest := m.newest.Load()
	if state == nil || newest < 0 {
		return -1
	}
	return float64(max(state.Head().Seq-newest, 0))
}

// Run copies entries until ctx ends, then closes the place of the copies. After a failure it waits and begins anew at
// the newest copy.
func (m *Mirror) Run(ctx context.Context) {
	defer m.close()
	pause := reliability.Backoff{Initial: time.Second, Max: time.Minute, Jitter: 0.25}
	for failures := 0; ctx.Err() == nil; {
		changed := m.Log.Changed()
		err := m.attempt(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			m.failing.Over(ctx, m.Logger, "copying the operations log again")
			wait, cancel := context.WithTimeout(ctx, recheck)
			select {
			case <-changed:
			case <-wait.Done():
			}
			cancel()
		default:
			failures++
			m.failures.Inc()
			m.failing.Failed(ctx, m.Logger, slog.LevelError, "failed to copy the operations log to ops.mirror_url_file; records and operations continue", "err", err)
			m.close()
			if reliability.Wait(ctx, pause.Pause(failures)) != nil {
				return
			}
		}
	}
}

// attempt copies what is new. A panic is an error: a client library that panics must not end the process.
func (m *Mirror) attempt(ctx context.Context) error {
	err := panics.Catch(func() error { return m.copy(ctx) })
	if caught, anew := m.panics.Anew(err); anew {
		m.Logger.ErrorContext(ctx, "a panic while the operations log was copied; report it with the stack", "err", err, "stack", caught.Stack)
	}
	return err
}

func (m *Mirror) close() {
	if m.place != nil {
		m.place.Close()
		m.place = nil
	}
}

// copy adds the entries that have no copy, up to the newest verified one.
func (m *Mirror) copy(ctx context.Context) error {
	state := m.Log.State()
	if state == nil {
		return nil
	}
	if m.place == nil {
		place, err := m.Open(ctx)
		if err != nil {
			return err
		}
		m.place = place
	}
	head, before := state.Head(), opslog.Head{Seq: -1}
	for {
		newest, err := m.place.Newest(ctx, head.Seq)
		if err != nil {
			return err
		}
		m.newest.Store(newest.Seq)
		switch {
		case newest == head:
			return nil
		case newest.Seq == head.Seq:
			return diverged(head.Seq)
		case newest == before:
			return fmt.Errorf("there are copies of later operations, and none of operation %d: copies were deleted; restore them, or move all copies away", newest.Seq+1)
		}
		before = newest
		if err := m.add(ctx, newest, head); !errors.Is(err, ErrMoved) {
			return err
		}
	}
}

// add adds copies of the entries after newest, up to head.
func (m *Mirror) add(ctx context.Context, newest, head opslog.Head) error {
	var batch []opslog.Entry
	var last opslog.Head // the entry before
	size := 0
	for e, err := range m.Log.Entries(ctx, max(newest.Seq, 1)) {
		switch {
		case err != nil:
			return err
		case e.Seq == newest.Seq && e.Head() != newest, e.Seq == head.Seq && e.Head() != head:
			return diverged(e.Seq)
		case e.Seq != newest.Seq && (e.Seq != last.Seq+1 || e.Prev != last.Hash):
			return diverged(last.Seq)
		}
		last = e.Head()
		if e.Seq == newest.Seq { // it has a copy, and was read to compare it
			continue
		}
		if len(batch) == maxEntries || len(batch) > 0 && size+len(e.Body) > maxBytes {
			if err := m.flush(ctx, newest, batch); err != nil {
				return err
			}
			newest, batch, size = batch[len(batch)-1].Head(), nil, 0
		}
		batch, size = append(batch, e), size+len(e.Body)
		if e.Seq == head.Seq {
			return m.flush(ctx, newest, batch)
		}
	}
	return fmt.Errorf("the operations log has no operation %d, which this member has read", last.Seq+1)
}

// flush adds the copies of a batch, which follow the copy newest, and counts them.
func (m *Mirror) flush(ctx context.Context, newest opslog.Head, batch []opslog.Entry) error {
	if err := m.place.Add(ctx, newest, batch); err != nil {
		return err
	}
	m.copied.Add(float64(len(batch)))
	m.newest.Store(batch[len(batch)-1].Seq)
	return nil
}
