// Package replay adds the records of dead letters to their table as rows, each exactly once, while members and other
// replays write the same table.
//
// Each commit of a replay is announced by an intent in the operations log. A table has one txn for replays. The commit
// sets it from the version that the intent names (After) to the seq of the intent. So of several intents with the same
// After only one can be committed, and table and operations log together always show which one it was:
//
//	txn == seq of the intent      it was committed
//	txn == After of the intent    not decided: its commit may still take effect
//	anything else                 it was not committed and never will be
//
// A crash leaves at most one intent without an outcome. The next replay, discard or move of positions settles it.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/reliability"
	"sluice/reliability/origin"
	"sluice/sink/delta"
	"sluice/sink/opslog"
)

// Table replays dead letters into one table. It is for one goroutine.
type Table struct {
	Pipeline string
	Path     string       // of the table, as the operations log names it
	Table    *delta.Table // opened for this Table alone
	Log      *opslog.Log
	// Topic returns how records of a topic become rows.
	Topic    func(topic string) Topic
	Operator string
	Reason   string
	Keys     origin.Keys // sign the records of Reproduce
	Run      *Run        // nil for an Add on its own

	failed map[idempotency.Coordinates]bool // records whose failure the current Add has recorded in the operations log
}

// Run is what the tables of one replay share.
type Run struct {
	// Once is the key of the first entry that the replay appends to the operations log; zero for none. Later entries have
	// no key.
	Once opslog.Once
	// First is the seq of that entry, 0 before it.
	First int64
}

// Topic says how records of a topic become rows.
type Topic struct {
	Decoder connector.Decoder
	Refuse  connector.Refusals
}

// Record is the record of a dead letter, with the offset and timestamp that it has in its own topic.
type Record struct {
	At     idempotency.Partition
	Record connector.Record
	// Edited is set if the value is not that of the dead letter.
	Edited *opslog.EditedValue
}

func (r *Record) coordinates() idempotency.Coordinates {
	return idempotency.Coordinates{Partition: r.At, Offset: r.Record.Offset}
}

func compareRecords(a, b Record) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Record.Offset, b.Record.Offset))
}

// Result is what became of the records of one [Table.Add].
type Result struct {
	Rows    int64     // became rows
	Version int64     // the table version with the rows, -1 without rows
	Failed  []Failure // still cannot become rows
	Parked  int       // of those that failed: it was the failure after which replays leave them out
	Left    []Left    // were left out

	reproduced map[idempotency.Partition]offsets.Set // the dead letters of Rows that Reproduce handled
}

// Failure is a record that still cannot become a row.
type Failure struct {
	At     idempotency.Coordinates
	Code   string // reason code
	Detail string
}

// Why says why a record was left out of a replay.
type Why string

// The reasons to leave out a record.
const (
	HasRow    Why = "has_row"   // the table has a row of it
	Resolved  Why = "resolved"  // an operator discarded it, or it was replayed
	InTopic   Why = "replaying" // an open replay has produced it to its topic, or will
	NotPassed Why = "pending"   // the position has not passed it, so members will read it
	TooOften  Why = "too_often" // it was replayed through its topic too often
	Unproven  Why = "unproven"  // the table cannot show whether it has a row of it
	Tombstone Why = "tombstone" // its value is null, and its topic makes no rows of such records
)

// Left is a record that was left out.
type Left struct {
	At  idempotency.Coordinates
	Why Why
}

// maxConflicts is how many conflicts in a row end an [Table.Add]. Each means that another replay, a move of positions or
// another decision came first.
const maxConflicts = 50

// errAgain means that the operations log changed since the records were selected.
var errAgain = errors.New("another operation came first")

// Add makes rows of records, in one commit. It leaves out records for the reasons of [Why]. Records that cannot become
// rows count as failed replays in the operations log.
//
// Errors: [connector.ErrUndecided] is in the chain if the outcome of the commit is unknown; the next Add of any process
// finds and records it. If only the outcome could not be recorded, the error comes with Rows above 0. After any other
// error none of the records became a row.
func (t *Table) Add(ctx context.Context, records []Record) (Result, error) {
	t.failed = map[idempotency.Coordinates]bool{}
	slices.SortStableFunc(records, compareRecords)
	jitter := reliability.Backoff{Initial: 50 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.5}
	var failures []Failure
	parked := 0
	for conflicts := 1; ; conflicts++ {
		result, err := t.try(ctx, records)
		failures, parked = append(failures, result.Failed...), parked+result.Parked
		result.Failed, result.Parked = failures, parked
		if err == nil || !again(err) || conflicts == maxConflicts {
			return result, err
		}
		if err := reliability.Wait(ctx, jitter.Pause(conflicts)); err != nil {
			return result, err
		}
	}
}

// try makes one attempt. The comment of each step says what a crash there leaves behind.
func (t *Table) try(ctx context.Context, records []Record) (Result, error) {
	result := Result{Version: -1}
	// 1. Settle the intents of crashed replays. A crash here leaves them for the next try.
	s, state, err := t.Settle(ctx)
	if err != nil {
		return result, err
	}

	// 2. Leave out what is resolved, has a row, or will be read by members.
	todo, err := t.choose(ctx, s, state, records, &result)
	if err != nil {
		return result, err
	}

	// 3. Decode. The operations log counts the failures; later tries of this Add leave these records out.
	rows, err := t.decode(s, todo, &result)
	if err != nil {
		return result, err
	}
	defer rows.release()
	if result.Parked, err = t.recordFailures(ctx, result.Failed); err != nil {
		return result, err
	}
	if len(rows.pieces) == 0 {
		return result, nil
	}

	// 4. Put the data files. A crash here leaves files that no version names; a vacuum removes them.
	r := t.plan(s, rows)
	batch := "replay-" + uuid.NewString()
	grown, _, err := connector.Grow(t.Topic(todo[0].At.Topic).Decoder, s, rows.pieces) // the topics of a table agree on its columns
	if err != nil {
		return result, err
	}
	staged, err := t.Table.Stage(ctx, grown, batch, rows.pieces, func(int, int64) {})
	if err != nil {
		return result, fmt.Errorf("data files: %w", err)
	}

	// 5. Announce the commit, unless since step 1 an operator moved positions, or one of the dead letters was replayed
	// or discarded. A crash here leaves an open intent.
	intent, err := t.announce(ctx, t.intent(r, rows), state)
	if err != nil {
		t.Table.Discard(ctx, staged)
		return result, err
	}

	// 6. Commit. A crash here leaves an open intent, committed or not: the table shows which.
	r.Intent = intent.Seq
	committed, err := t.Table.Commit(ctx, r.Commit(batch, staged), r.Precondition)
	if err != nil {
		t.Table.Discard(ctx, staged) // keeps files that may be in the log
	}

	// 7. Record the outcome. A crash here loses nothing: settling finds the same outcome.
	if errors.Is(err, connector.ErrUndecided) {
		return result, fmt.Errorf("the outcome of the replay is unknown: %w", err)
	}
	if err != nil {
		return result, errors.Join(err, t.close(ctx, intent.Seq, opslog.Conflict, -1, err.Error()))
	}
	result.Rows, result.Version = staged.Rows, committed.Version
	return result, t.close(ctx, intent.Seq, opslog.Committed, committed.Version, "")
}

// plan returns the plan of a commit that adds rows to the table as of s.
func (t *Table) plan(s *connector.Snapshot, rows *rows) *plan.Replay {
	r := &plan.Replay{
		Pipeline: t.Pipeline, TableID: s.TableID, After: s.Positions[idempotency.ReplayAppID(t.Pipeline, s.TableID)],
		Schema: s.Schema, Passed: map[connector.Partition]int64{},
	}
	for _, p := range slices.SortedFunc(maps.Keys(rows.letters), idempotency.Partition.Compare) {
		r.Letters = append(r.Letters, connector.Replayed(opslog.LettersOf(p, rows.letters[p])))
		// The rows were compared with the table at this position. While the partition stays at or after it, no member
		// reads the records again.
		r.Passed[p] = s.Positions[p.AppID(t.Pipeline)]
	}
	return r
}

// intent returns the intent of a commit that adds rows.
func (t *Table) intent(r *plan.Replay, rows *rows) opslog.ReplayIntent {
	body := opslog.ReplayIntent{Table: t.Path, TableID: r.TableID, After: r.After, Edited: rows.edited}
	for _, l := range r.Letters {
		body.Letters = append(body.Letters, opslog.Letters(l))
	}
	return body
}

// announce appends the intent of a commit to the operations log. state is the operations log before the records were
// compared with the table.
//
// It returns errAgain if another operation came first: positions of a topic were moved since then; a dead letter of
// the intent was resolved, or is being replayed through the topic; the replay that the intent withdraws has ended; or
// an open intent has the seq After of this one. It returns a [RefusedError] while a move of positions is open.
func (t *Table) announce(ctx context.Context, body opslog.ReplayIntent, state *opslog.State) (opslog.Entry, error) {
	return t.appendOwn(ctx, body, func(now *opslog.State) error {
		if slices.ContainsFunc(now.OpenReplays(t.Path), func(open opslog.OpenReplay) bool { return open.Seq == body.After }) {
			return errAgain // it was committed and its outcome is not recorded yet
		}
		if body.Withdraws > 0 && !slices.ContainsFunc(now.TopicReplays(t.Path), func(open opslog.OpenReplay) bool { return open.Seq == body.Withdraws }) {
			return errAgain
		}
		for _, l := range body.Letters {
			p := l.Source()
			if resolved(now, p).Within(l.Offsets).Len() > 0 || now.LastMove(p.Topic) != state.LastMove(p.Topic) {
				return errAgain
			}
			if at := t.inTopic(now, p); at.Within(l.Offsets).Len() > 0 || body.Mode == opslog.ByTopic && at.Len() > 0 {
				return errAgain
			}
			if err := Moving(now, p.Topic); err != nil {
				return err
			}
		}
		return nil
	})
}

// close records the outcome of an intent. It has 20 seconds, even if ctx has ended.
func (t *Table) close(ctx context.Context, intent int64, o opslog.Outcome, version int64, detail string) error {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	err := t.closeOpen(ending, intent, o, version, detail)
	if err != nil {
		return fmt.Errorf("the outcome of intent %d (%s) could not be recorded, the next replay does it: %w", intent, o, err)
	}
	return nil
}

// closeOpen records the outcome of an intent, unless the operations log already has one.
func (t *Table) closeOpen(ctx context.Context, intent int64, o opslog.Outcome, version int64, detail string) error {
	const longest = 500
	if len(detail) > longest {
		detail = detail[:longest]
	}
	body := opslog.ReplayDone{Intent: intent, Table: t.Path, Outcome: o, Version: version, Detail: detail}
	return t.end(ctx, body, intent, (*opslog.State).OpenReplays)
}

// end appends an entry that ends an intent, unless the intent is no longer among those that list returns.
func (t *Table) end(ctx context.Context, body opslog.Body, intent int64, list func(s *opslog.State, table string) []opslog.OpenReplay) error {
	recorded := errors.New("the end is recorded")
	_, err := t.append(ctx, body, func(now *opslog.State) error {
		if !slices.ContainsFunc(list(now, t.Path), func(open opslog.OpenReplay) bool { return open.Seq == intent }) {
			return recorded
		}
		return nil
	})
	if errors.Is(err, recorded) {
		return nil
	}
	return err
}

// recordFailures counts one more failed replay for each of these dead letters in the operations log. It returns how
// many of them are parked from now on, because they have failed too often. Later tries of the same Add leave their
// records out.
func (t *Table) recordFailures(ctx context.Context, failures []Failure) (parked int, err error) {
	at := map[idempotency.Partition][]int64{}
	for _, f := range failures {
		t.failed[f.At] = true
		at[f.At.Partition] = append(at[f.At.Partition], f.At.Offset)
	}
	if len(at) == 0 {
		return 0, nil
	}
	body := opslog.ReplayFailed{Table: t.Path}
	for _, p := range slices.SortedFunc(maps.Keys(at), idempotency.Partition.Compare) {
		body.Letters = append(body.Letters, opslog.LettersOf(p, offsets.Of(at[p]...)))
	}
	_, err = t.appendOwn(ctx, body, func(now *opslog.State) error {
		parked = 0
		for _, l := range body.Letters {
			parked += int(now.Letters(l.Source()).ParkedBy(l.Offsets).Len())
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return parked, nil
}

// appendOwn appends an entry about records of this replay: the first one has the key of the replay.
func (t *Table) appendOwn(ctx context.Context, body opslog.Body, pre func(*opslog.State) error) (opslog.Entry, error) {
	if t.Run == nil || t.Run.First > 0 {
		return t.append(ctx, body, pre)
	}
	e, err := t.appendOnce(ctx, t.Run.Once, body, pre)
	if err == nil {
		t.Run.First = e.Seq
	}
	return e, err
}

func (t *Table) append(ctx context.Context, body opslog.Body, pre func(*opslog.State) error) (opslog.Entry, error) {
	return t.appendOnce(ctx, opslog.Once{}, body, pre)
}

func (t *Table) appendOnce(ctx context.Context, once opslog.Once, body opslog.Body, pre func(*opslog.State) error) (opslog.Entry, error) {
	host, _ := os.Hostname() // an entry may lack the host
	return t.Log.Append(ctx, opslog.Operation{Operator: t.Operator, Host: host, Reason: t.Reason, Once: once, Body: body}, pre)
}
