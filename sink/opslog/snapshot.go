package opslog

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice/sink/delta/objstore"
)

const (
	// SnapshotEvery is the number of entries after which [Log.Append] adds a [Snapshot].
	SnapshotEvery = 10_000
	snapshotAgain = SnapshotEvery / 10
	// snapshotFormat is the meaning of the state in a snapshot. A version increments it if it folds an entry into the
	// state in another way: because of a new kind, or of a new field. A snapshot of another format is not used, since the
	// state in it may lack the effect of some entries.
	snapshotFormat = 1
	// snapshotPatience is how long an operation waits for a snapshot to be written. It is well below the minute after
	// which another process withdraws the intent of a replay.
	snapshotPatience = 10 * time.Second
	// snapshotPart is the number of bytes of a state in one entry, so that their base64 fits into [MaxEntry].
	snapshotPart = 700 << 10
	// maxParts bounds the entries of one snapshot, and maxState the bytes of a state after decompression. A larger state
	// gets no snapshot.
	maxParts = 64
	maxState = 256 << 20
)

// snapshotOperator is the operator of the entries of a snapshot: no person requests one.
const snapshotOperator = "connector"

// Snapshot is the state of the log up to an earlier entry, so that a process that starts need not read all entries. It
// changes nothing.
type Snapshot struct {
	Format int    `json:"format"`
	Of     Head   `json:"of"`              // newest entry that the state covers
	Parts  []Head `json:"parts,omitempty"` // entries with a [SnapshotPart], which have the first bytes of the state
	Data   []byte `json:"data"`            // last bytes of the state: gzip of JSON
}

// SnapshotPart has some bytes of a state that is too large for one entry. It changes nothing. One that no [Snapshot]
// names belongs to a snapshot that was not completed.
type SnapshotPart struct {
	Of   Head   `json:"of"`
	Data []byte `json:"data"`
}

// Kind implements [Body].
func (Snapshot) Kind() Kind { return KindSnapshot }

// Kind implements [Body].
func (SnapshotPart) Kind() Kind { return KindSnapshotPart }

func (s Snapshot) check() error {
	if s.Format < 1 {
		return errors.New("the format is missing")
	}
	for _, part := range s.Parts {
		if err := part.check(); err != nil {
			return err
		}
	}
	return s.Of.check()
}

func (p SnapshotPart) check() error { return p.Of.check() }

func (h Head) check() error {
	if h.Seq < 1 || h.Seq > maxSeq || !isHash(h.Hash) {
		return fmt.Errorf("%v is no head", h)
	}
	return nil
}

// snapshots decides when a snapshot is due, and how large its entries are.
type snapshots struct {
	every int64 // entries from one snapshot to the next
	again int64 // entries after which a snapshot that was not completed is tried again, and its writer gives it up
	part  int   // largest number of bytes of a state in one entry
}

// due reports whether a snapshot of s must be written: the newest one is old, and no process has begun another one
// lately. A process may have ended between the parts of a snapshot, so that one is tried again after some entries.
func (n snapshots) due(s *State) bool {
	return s.head.Seq-s.snapshot >= n.every && s.head.Seq-s.snapshotTried >= n.again
}

// errOvertaken means that another process writes a snapshot.
var errOvertaken = errors.New("another process has begun a snapshot")

// addSnapshot appends a snapshot if one is due. A failure is only logged: the operation before it is in the log, and a
// later operation tries again. The caller has the lock.
func (l *Log) addSnapshot(ctx context.Context, host string) {
	if !l.due(l.own.state) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotPatience)
	defer cancel()
	e, err := l.writeSnapshot(ctx, host)
	switch {
	case errors.Is(err, errOvertaken):
		l.log.DebugContext(ctx, "another process writes a snapshot of the operations log")
	case err != nil:
		l.log.WarnContext(ctx, "failed to write a snapshot of the operations log; a later operation tries again", "err", err)
	default:
		l.log.InfoContext(ctx, "wrote a snapshot of the operations log", "seq", e.Seq)
	}
}

// writeSnapshot appends the snapshot of the present state: first its parts, if one entry is too small for it.
func (l *Log) writeSnapshot(ctx context.Context, host string) (Entry, error) {
	of := l.own.state
	data, err := encodeState(of)
	if err != nil {
		return Entry{}, err
	}
	if len(data) > maxParts*l.part {
		return Entry{}, fmt.Errorf("a state of %d bytes is larger than %d entries", len(data), maxParts)
	}
	s := Snapshot{Format: snapshotFormat, Of: of.head}
	begun := of.head.Seq
	alone := func(now *State) error {
		if max(now.snapshot, now.snapshotTried) > begun || now.head.Seq-of.head.Seq > l.again {
			return errOvertaken
		}
		return nil
	}
	op := Operation{Operator: snapshotOperator, Host: host, Reason: fmt.Sprintf("state at operation %d", of.head.Seq)}
	for ; len(data) > l.part; data = data[l.part:] {
		op.Body = SnapshotPart{Of: of.head, Data: data[:l.part]}
		part, err := l.appendNext(ctx, op, alone)
		if err != nil {
			return part, err
		}
		s.Parts, begun = append(s.Parts, part.Head()), part.Seq
	}
	s.Data = data
	op.Body = s
	return l.appendNext(ctx, op, alone)
}

// start extends an empty chain from the newest snapshot. It reports false if there is none that can be used, also if
// the log is broken: then the caller reads all entries, and finds where it is broken. The chain is unchanged unless
// start reports true.
func (c *chain) start(ctx context.Context) (started bool, err error) {
	at, err := c.newestSnapshot(ctx)
	if at == 0 || err != nil {
		return false, err
	}
	from, err := c.fromSnapshot(ctx, at)
	if err == nil {
		err = from.extend(ctx)
	}
	if unusable := (*BrokenError)(nil); errors.As(err, &unusable) {
		return false, nil
	}
	if err == nil {
		*c = from
	}
	return err == nil, err
}

// newestSnapshot returns the seq of a snapshot that the last entry names, 0 if it names none. Nothing is proven yet.
func (c *chain) newestSnapshot(ctx context.Context) (seq int64, err error) {
	last, err := c.lastSeq(ctx)
	if last == 0 || err != nil {
		return 0, err
	}
	object, err := c.read(ctx, last)
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return 0, err
	}
	e, broken := entryAt(last, object)
	if broken != nil {
		return 0, nil //nolint:nilerr // the reader of all entries reports it
	}
	return e.Snapshot, nil
}

// lastSeq returns the seq of the last entry of an intact log, with few requests instead of a list of all entries. It
// returns 0 if the log is too short for a snapshot.
func (c *chain) lastSeq(ctx context.Context) (seq int64, err error) {
	last, beyond := int64(0), c.every
	for beyond <= maxSeq/2 { // the last entry is before beyond
		found, err := c.exists(ctx, beyond)
		if err != nil {
			return 0, err
		}
		if !found {
			break
		}
		last, beyond = beyond, 2*beyond
	}
	for last > 0 && beyond-last > 1 {
		middle := last + (beyond-last)/2
		found, err := c.exists(ctx, middle)
		if err != nil {
			return 0, err
		}
		if found {
			last = middle
		} else {
			beyond = middle
		}
	}
	return last, nil
}

// fromSnapshot returns a chain that begins with the state of the snapshot at a seq. The chain is proven only once it
// has been extended, because the snapshot is an entry after its state. The error is a [BrokenError] if the snapshot
// cannot be used.
func (b bucket) fromSnapshot(ctx context.Context, at int64) (c chain, err error) {
	read := func(seq int64) (Entry, Body, error) {
		object, err := b.read(ctx, seq)
		if err != nil && !errors.Is(err, objstore.ErrNotFound) {
			return Entry{}, nil, err
		}
		e, err := entryAt(seq, object)
		if err != nil {
			return e, nil, err
		}
		body, err := e.Decode()
		if err != nil {
			return e, nil, broken(seq, "%v", err)
		}
		return e, body, nil
	}
	e, body, err := read(at)
	if err != nil {
		return c, err
	}
	s, ok := body.(Snapshot)
	switch {
	case !ok:
		return c, broken(at, "it is no snapshot")
	case s.Format != snapshotFormat:
		return c, broken(at, "it is a snapshot of format %d, not %d", s.Format, snapshotFormat)
	case s.Of.Seq >= at:
		return c, broken(at, "it is a snapshot of a later operation")
	case len(s.Parts) > maxParts:
		return c, broken(at, "it has %d parts", len(s.Parts))
	}
	var data []byte
	for _, h := range s.Parts {
		e, body, err := read(h.Seq)
		if err != nil {
			return c, err
		}
		part, ok := body.(SnapshotPart)
		if !ok || e.Head() != h || part.Of != s.Of {
			return c, broken(at, "operation %d is no part of it", h.Seq)
		}
		data = append(data, part.Data...)
	}
	state, err := decodeState(append(data, s.Data...))
	if err != nil {
		return c, broken(at, "its state cannot be read: %v", err)
	}
	state.head = s.Of
	return chain{bucket: b, state: state, from: e.Head()}, nil
}

// disagrees compares a snapshot, together with the entries after its state, with s, which is the state of all entries
// up to e. It returns what is wrong, "" if nothing is, if e is no snapshot, or if its format is another.
func (b bucket) disagrees(ctx context.Context, e Entry, s *State) (why string, err error) {
	if s.snapshot != e.Seq {
		return "", nil
	}
	c, err := b.fromSnapshot(ctx, e.Seq)
	if err == nil {
		err = b.readAll(ctx, c.state.head.Seq+1, e.Seq, func(seq int64, object []byte) error {
			_, err := c.add(seq, object)
			return err
		})
	}
	if unusable := (*BrokenError)(nil); errors.As(err, &unusable) {
		return unusable.Why, nil
	}
	if err != nil {
		return "", err
	}
	got, err := c.state.canonical()
	if err != nil {
		return "", err
	}
	want, err := s.canonical()
	if err != nil {
		return "", err
	}
	if !bytes.Equal(got, want) {
		return "its state is not that of the operations before it", nil
	}
	return "", nil
}

// encodeState returns the state as the snapshot has it: gzip of JSON. The head is left out.
func encodeState(s *State) ([]byte, error) {
	text, err := s.canonical()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(text)
	if err := errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("compress the state: %w", err)
	}
	return b.Bytes(), nil
}

func decodeState(data []byte) (*State, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxState+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxState:
		return nil, fmt.Errorf("it is larger than %d bytes", maxState)
	}
	var stored storedState
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, errors.New("it is not the JSON of a state")
	}
	return stored.state()
}
