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

// Options of a log.
type Options struct {
	// Guard stands before the store. It retries and breaks; nothing below it does.
	Guard      *reliability.Guard
	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // of a follower's metrics; nil registers nothing
}

// Log is the operations log of a pipeline. Its methods may be called at the same time.
type Log struct {
	bucket
	log *slog.Logger
	reg prometheus.Registerer

	mu  sync.Mutex // one append at a time: others of this process would only lose against it
	own chain
}

// Open returns the log of a pipeline in a store, which is the place that all its tables lie in. It asks the store nothing.
func Open(store objstore.Store, pipeline string, o Options) *Log {
	l := &Log{bucket: bucket{store, o.Guard, dir(pipeline)}, log: o.Logger, reg: o.Registerer}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.own = chain{bucket: l.bucket, state: &State{}}
	return l
}

// State reads the log and returns what it says now. The error is a [BrokenError] or the store's.
func (l *Log) State(ctx context.Context) (*State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.own.refresh(ctx); err != nil {
		return nil, fmt.Errorf("read the operations log: %w", err)
	}
	return l.own.state, nil
}

// Entries yields the entries from a seq on, in order, without looking at the chain. One that cannot be read as an entry, or
// is missing, comes as a [BrokenError] with its seq in the entry, and the next ones follow; several missing ones come as
// the first of them. Any other error ends it.
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

// entryAt reads the object that lies at a seq, nil if there is none any more. The error is a BrokenError.
func entryAt(seq int64, object []byte) (Entry, error) {
	s := look(seq, object)
	if s.bad != "" {
		return Entry{Seq: seq}, broken(seq, "%s", s.bad)
	}
	return parse(object)
}

// Append adds an operation behind the newest entry. pre is called with the state that the entry would follow, before each
// seq it is offered as; its error ends the append and is returned as it is. pre may be nil.
//
// Errors: that of pre; a [BrokenError] if the log is broken, since members would not hear of an entry behind it; Fatal if
// the store denies; Canceled when ctx ends. [ErrUndecided] is in the chain if a put of the entry has no known outcome; the
// entry returned is then the one that may be in the log.
func (l *Log) Append(ctx context.Context, op Operation, pre func(*State) error) (Entry, error) {
	if err := op.check(); err != nil {
		return Entry{}, classify.Mark(fmt.Errorf("append to the operations log: %w", err), classify.Fatal)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for losses := 0; ; losses++ {
		// 1. Look at the log: what others added, and that nothing is broken.
		if err := l.own.refresh(ctx); err != nil {
			return Entry{}, fmt.Errorf("append to the operations log: %w", err)
		}
		// 2. PRE: may the operation follow this?
		if pre != nil {
			if err := pre(l.own.state); err != nil {
				return Entry{}, err
			}
		}
		// 3. Write the entry down. From here on these bytes are all that is ever offered as this seq.
		e, object, err := propose(op, l.own.state.head)
		if err != nil {
			return Entry{}, classify.Mark(fmt.Errorf("append to the operations log: %w", err), classify.Fatal)
		}
		// 4. Put it if it is absent, until it is known whose the seq is.
		p := l.proposal(e, object, l.own.seen)
		won, err := l.append(ctx, p)
		if err != nil {
			return p.entry, fmt.Errorf("append to the operations log: %w", err)
		}
		if won {
			// It is durable. Its stamp is not known; the next look reads it once more.
			l.own.state, l.own.stamp = l.own.state.after(p.entry), stamp{}
			return p.entry, nil
		}
		l.log.DebugContext(ctx, "another operation came first", "seq", p.entry.Seq, "losses", losses+1)
		if err := reliability.Wait(ctx, afterLoss(losses)); err != nil {
			return Entry{}, classify.Mark(fmt.Errorf("append to the operations log: %w", err), classify.Canceled)
		}
	}
}

// afterLoss is the pause after the n-th lost race, counted from 0: 20 ms to 2 s, wider with each, so that writers who
// lost to the same one do not meet again.
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
	}
	return op.Body.check()
}

// propose writes the entry that follows a head.
func propose(op Operation, head Head) (e Entry, object []byte, err error) {
	body, err := marshal(op.Body)
	if err != nil {
		return e, nil, err
	}
	e = Entry{
		Seq: head.Seq + 1, ID: uuid.NewString(), Prev: head.Hash, At: time.Now().UTC().Round(0),
		Operator: op.Operator, Host: op.Host, Kind: op.Body.Kind(), Reason: op.Reason, Body: body,
	}
	if object, err = encode(e); err != nil {
		return e, nil, err
	}
	if e, err = parse(object); err != nil { // what others will read
		return e, nil, fmt.Errorf("the entry cannot be read back: %w", err)
	}
	return e, object, nil
}
