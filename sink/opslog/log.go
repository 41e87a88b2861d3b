package opslog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/reliability"
	"sluice/sink/delta/objstore"
)

// Options configure a [Log].
type Options struct {
	// Guard retries the store's requests and has its breaker. The store itself must not retry.
	Guard      *reliability.Guard
	Logger     *slog.Logger          // nil discards log lines
	Registerer prometheus.Registerer // for a follower's metrics; nil registers none
}

// Log is the operations log of a pipeline. Its methods are safe for concurrent use.
type Log struct {
	bucket
	log *slog.Logger
	reg prometheus.Registerer

	mu  sync.Mutex // allows one append at a time: two appends of one process would only conflict
	own chain
}

// Open returns the log of a pipeline in a store, the one that holds all its tables. It makes no request.
func Open(store objstore.Store, pipeline string, o Options) *Log {
	l := &Log{bucket: bucket{store, o.Guard, dir(pipeline), snapshots{SnapshotEvery, snapshotAgain, snapshotPart}}, log: o.Logger, reg: o.Registerer}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.own = chain{bucket: l.bucket, state: &State{}}
	return l
}

// State reads the log and returns its current state. The error is a [BrokenError] or the store's.
func (l *Log) State(ctx context.Context) (*State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.own.refresh(ctx); err != nil {
		return nil, fmt.Errorf("read the operations log: %w", err)
	}
	return l.own.state, nil
}

// Entries yields the entries from a seq on, in order, without verifying the chain. An entry that is missing or cannot
// be parsed comes as a [BrokenError] with its seq in the entry, and iteration continues. Several missing entries in a
// row come as the first of them. Any other error ends the iteration.
func (l *Log) Entries(ctx context.Context, from int64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		from = max(from, 1)
		found, err := l.list(ctx, from-1)
		if err != nil {
			yield(Entry{}, fmt.Errorf("list the operations log: %w", err))
			return
		}
		stopped := errors.New("stopped")
		for first, last := range found.runs() {
			if first > from && !yield(Entry{Seq: from}, broken(from, "%s", missing(from, first-1))) {
				return
			}
			from = last + 1
			err = l.readAll(ctx, first, last, func(seq int64, object []byte) error {
				e, err := entryAt(seq, object)
				if !yield(e, err) {
					return stopped
				}
				return nil
			})
			if errors.Is(err, stopped) {
				return
			}
			if err != nil {
				yield(Entry{}, fmt.Errorf("read the operations log: %w", err))
				return
			}
		}
	}
}

// Entry reads one entry, without verifying the chain. The error is a [BrokenError] if it is missing or cannot be
// parsed.
func (l *Log) Entry(ctx context.Context, seq int64) (Entry, error) {
	object, err := l.read(ctx, seq)
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return Entry{Seq: seq}, fmt.Errorf("read the operations log: %w", err)
	}
	return entryAt(seq, object)
}

// entryAt parses the object at a seq; nil means that the entry was deleted. The error is a BrokenError.
func entryAt(seq int64, object []byte) (Entry, error) {
	s := inspect(seq, object)
	if s.bad != "" {
		return Entry{Seq: seq}, broken(seq, "%s", s.bad)
	}
	return parse(object)
}

// Append adds an operation after the newest entry. Before each try it calls pre with the state that the entry would
// follow. An error of pre ends the append and is returned unchanged. pre may be nil.
//
// After each [SnapshotEvery] entries it adds a [Snapshot], too. That the snapshot cannot be written is only logged.
//
// Errors: a [RepeatedError] if the log has the operation's key; the error of pre; a [BrokenError] if the log is broken,
// because members would not read an entry after the break; Fatal if the store denies; Canceled when ctx ends.
// [ErrUndecided] is in the chain if a put of the entry has an unknown outcome; the returned entry is then the one that
// may be in the log.
func (l *Log) Append(ctx context.Context, op Operation, pre func(*State) error) (Entry, error) {
	if err := op.check(); err != nil {
		return Entry{}, classify.Mark(fmt.Errorf("append to the operations log: %w", err), classify.Fatal)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e, err := l.appendNext(ctx, op, pre)
	if err == nil {
		l.addSnapshot(ctx, op.Host)
	}
	return e, err
}

// appendNext does what Append does, for a valid operation and without a snapshot. The caller has the lock.
func (l *Log) appendNext(ctx context.Context, op Operation, pre func(*State) error) (Entry, error) {
	for losses := 0; ; losses++ {
		// 1. Refresh the chain: load what other writers added, and verify that nothing is broken.
		if err := l.own.refresh(ctx); err != nil {
			return Entry{}, fmt.Errorf("append to the operations log: %w", err)
		}
		// 2. Precondition: may the operation follow this state?
		if err := l.own.state.repeated(op.Once, time.Now()); err != nil {
			return Entry{}, err
		}
		if pre != nil {
			if err := pre(l.own.state); err != nil {
				return Entry{}, err
			}
		}
		// 3. Encode the entry. From here on only these bytes are put at this seq.
		e, object, err := propose(op, l.own.state)
		if err != nil {
			return Entry{}, classify.Mark(fmt.Errorf("append to the operations log: %w", err), classify.Fatal)
		}
		// 4. Put the entry if its seq is absent, until the outcome is known.
		p := l.proposal(e, object, l.own.seen)
		committed, err := l.append(ctx, p)
		if err != nil {
			return p.entry, fmt.Errorf("append to the operations log: %w", err)
		}
		if committed {
			// The entry is durable. Its stamp is unknown, so the next refresh reads it once more.
			l.own.state, l.own.stamp = l.own.state.after(p.entry), stamp{}
			return p.entry, nil
		}
		l.log.DebugContext(ctx, "another operation was appended first; retrying with the next seq", "seq", p.entry.Seq, "losses", losses+1)
		if err := reliability.Wait(ctx, afterLoss(losses)); err != nil {
			return Entry{}, classify.Mark(fmt.Errorf("append to the operations log: %w", err), classify.Canceled)
		}
	}
}

// afterLoss returns a random pause after the n-th conflict in a row, counted from 0. It is at least 20 ms. Its upper
// limit doubles with n, from 80 ms to 2 s, so that writers that had a conflict with the same entry do not meet again.
func afterLoss(n int) time.Duration {
	const least, most = 20 * time.Millisecond, 2 * time.Second
	wide := min(most, least<<min(n+2, 10))
	return least + rand.N(wide-least+1)
}

func (op Operation) check() error {
	switch {
	case op.Body == nil:
		return errors.New("the operation has no body")
	case op.Operator == "":
		return errors.New("the operation does not say who")
	case op.Reason == "":
		return errors.New("the operation does not say why")
	case op.Once != (Once{}) && op.Once.check() != nil:
		return op.Once.check()
	}
	return op.Body.check()
}

// propose encodes the entry that follows a state.
func propose(op Operation, s *State) (e Entry, object []byte, err error) {
	body, err := marshal(op.Body)
	if err != nil {
		return e, nil, err
	}
	e = Entry{
		Seq: s.head.Seq + 1, ID: uuid.NewString(), Prev: s.head.Hash, At: time.Now().UTC().Round(0),
		Operator: op.Operator, Host: op.Host, Kind: op.Body.Kind(), Reason: op.Reason, Snapshot: s.snapshot, Body: body,
	}
	if op.Once != (Once{}) {
		e.Once = &op.Once
	}
	if object, err = encode(e); err != nil {
		return e, nil, err
	}
	if e, err = parse(object); err != nil { // as other readers will parse the entry
		return e, nil, fmt.Errorf("the entry cannot be read back: %w", err)
	}
	return e, object, nil
}
