package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/reliability"
	"sluice/reliability/origin"
	"sluice/sink/opslog"
)

// Producer produces records to the topic of their dead letters.
type Producer interface {
	// Produce appends records to a partition, in this order, and returns once all of them are durable. It may append some
	// of them more than once, also if it returns an error. It refuses a topic with another id.
	Produce(ctx context.Context, p idempotency.Partition, records []connector.Record) error
}

const (
	// pollEvery is the pause between two reads of the table while members accept records.
	pollEvery = time.Second
	// abandonedAfter and quietFor decide when the replay through the topic of another process counts as abandoned. It
	// must have begun longer ago than abandonedAfter, and members must have accepted none of its records for quietFor
	// while this process watched.
	abandonedAfter, quietFor = time.Minute, 20 * time.Second
	// patience is how long members may accept none of the records of a replay before Reproduce gives up.
	patience = 10 * time.Minute
	// maxWithdrawn is how often other processes may withdraw the replay of one Reproduce.
	maxWithdrawn = 3
)

// errWithdrawn means that another process has withdrawn the replay before members accepted all of its records.
var errWithdrawn = errors.New("another process has withdrawn the replay")

// Reproduce makes rows of records as Add does, but through their topic: it produces them again, each with a signed origin,
// and waits until members have accepted them. ADR 20 has the protocol. It can produce at most [opslog.MaxLetters] records,
// because one intent names all of them.
//
// Records that cannot become rows with the decoder of this process count as failed replays and are not produced. The errors
// are those of Add. After any error members may still accept records that were produced; a later replay finds out.
func (t *Table) Reproduce(ctx context.Context, records []Record, to Producer) (Result, error) {
	t.failed = map[idempotency.Coordinates]bool{}
	records = slices.Clone(records)
	slices.SortStableFunc(records, compareRecords)
	records = slices.CompactFunc(records, func(a, b Record) bool { return compareRecords(a, b) == 0 })
	jitter := reliability.Backoff{Initial: 50 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.5}
	var failures []Failure
	rows, parked, withdrawn := int64(0), 0, 0
	for conflicts := 1; ; conflicts++ {
		result, err := t.tryTopic(ctx, records, to)
		failures, rows, parked = append(failures, result.Failed...), rows+result.Rows, parked+result.Parked
		result.Failed, result.Rows, result.Parked = failures, rows, parked
		if errors.Is(err, errWithdrawn) {
			withdrawn++
			records = slices.DeleteFunc(records, func(r Record) bool { return result.reproduced[r.At].Has(r.Record.Offset) })
		}
		if err == nil || !again(err) && !errors.Is(err, errWithdrawn) || conflicts == maxConflicts || withdrawn == maxWithdrawn {
			return result, err
		}
		if err := reliability.Wait(ctx, jitter.Pause(conflicts)); err != nil {
			return result, err
		}
	}
}

// tryTopic makes one attempt. The comment of each step says what a crash there leaves behind.
func (t *Table) tryTopic(ctx context.Context, records []Record, to Producer) (Result, error) {
	result := Result{Version: -1}
	// 1. Settle crashed replays, and wait for open ones of the same partitions. A crash here leaves them for the next try.
	s, state, err := t.vacant(ctx, records)
	if err != nil {
		return result, err
	}

	// 2. Leave out what is resolved, has a row, will be read by members, or cannot become a row.
	todo, err := t.choose(ctx, s, state, records, &result)
	if err != nil {
		return result, err
	}
	todo = slices.DeleteFunc(todo, func(r Record) bool {
		if t.replays(&r) > opslog.MaxReplays {
			result.Left = append(result.Left, Left{r.coordinates(), TooOften})
			return true
		}
		return false
	})
	rows, err := t.decode(s, todo, &result)
	if err != nil {
		return result, err
	}
	rows.release()
	if result.Parked, err = t.recordFailures(ctx, result.Failed); err != nil {
		return result, err
	}
	if len(rows.letters) == 0 {
		return result, nil
	}

	// 3. Announce and open the intent. A crash here leaves an intent that is open or not, as the table shows. Nothing is
	// produced, so the next replay withdraws it.
	opened, err := t.open(ctx, s, state, rows)
	if err != nil {
		return result, err
	}

	// 4. Produce the records. A crash here leaves some of them in the topic; members accept the first ones of each
	// partition, up to the first one that is missing. The next replay withdraws the intent and replays the others.
	if err := t.produce(ctx, opened, todo, to); err != nil {
		return result, fmt.Errorf("produce to the topic: %w", err)
	}

	// 5. Wait until members have accepted all, and close the intent. A crash here loses nothing: settling closes it.
	state, err = t.await(ctx, opened.Seq)
	if err != nil {
		return result, err
	}
	all := int64(0)
	result.reproduced = map[idempotency.Partition]offsets.Set{}
	for p, at := range rows.letters {
		all += at.Len()
		result.reproduced[p] = state.Letters(p).Reproduced.Within(at)
		result.Rows += result.reproduced[p].Len()
	}
	if result.Rows < all {
		return result, errWithdrawn
	}
	return result, nil
}

// open announces a replay through the topic, commits its intent and records the outcome.
func (t *Table) open(ctx context.Context, s *connector.Snapshot, state *opslog.State, rows *rows) (opslog.OpenReplay, error) {
	r := t.plan(s, rows)
	body := t.intent(r, rows)
	body.Mode = opslog.ByTopic
	r.Letters, r.Schema = nil, nil // members make the rows
	r.Origins = versions(s, t.Pipeline, body.Letters)
	intent, err := t.announce(ctx, body, state)
	if err != nil {
		return opslog.OpenReplay{}, err
	}
	r.Intent = intent.Seq
	committed, err := t.Table.Commit(ctx, r.Commit("", nil), r.Precondition)
	switch {
	case errors.Is(err, connector.ErrUndecided):
		return opslog.OpenReplay{}, fmt.Errorf("the outcome of the replay is unknown: %w", err)
	case err != nil:
		return opslog.OpenReplay{}, errors.Join(err, t.close(ctx, intent.Seq, opslog.Conflict, -1, err.Error()))
	}
	open := opslog.OpenReplay{ReplayIntent: body, Seq: intent.Seq}
	return open, t.close(ctx, intent.Seq, opslog.Committed, committed.Version, "")
}

// produce produces the records of an open intent, each with its origin. records are sorted, and include all of the intent.
func (t *Table) produce(ctx context.Context, open opslog.OpenReplay, records []Record, to Producer) error {
	for _, l := range open.Letters {
		p, number := l.Source(), int64(0)
		var all []connector.Record
		next := l.Offsets.From(0)
		for i := range records {
			r := &records[i]
			if r.At != p || !next.Has(r.Record.Offset) {
				continue
			}
			number++
			from := origin.Origin{Pipeline: t.Pipeline, TableID: open.TableID, Record: r.coordinates(), Intent: open.Seq, Number: number, Replays: t.replays(r)}
			out := connector.Record{Key: r.Record.Key, Value: r.Record.Value, Timestamp: time.Now().UnixMilli()}
			for _, h := range r.Record.Headers {
				if h.Key != origin.Header { // that of an earlier replay
					out.Headers = append(out.Headers, h)
				}
			}
			out.Headers = append(out.Headers, connector.Header{Key: origin.Header, Value: t.Keys.Sign(from, out.Key, out.Value)})
			all = append(all, out)
		}
		if err := to.Produce(ctx, p, all); err != nil {
			return fmt.Errorf("%v: %w", p, err)
		}
	}
	return nil
}

// replays returns how often the record of a dead letter will have been replayed through its topic after this replay:
// one more than the origin in its headers says, or 1 if it has no genuine origin.
func (t *Table) replays(r *Record) int64 {
	header, ok := connector.LastHeader(r.Record.Headers, origin.Header)
	if !ok {
		return 1
	}
	from, err := t.Keys.Verify(header, r.Record.Key, r.Record.Value)
	if err != nil { // forged, or of an edited value: then an operator has looked at it
		return 1
	}
	return from.Replays + 1
}

// vacant waits until no replay through the topic is open for any partition of the records, and returns the snapshot
// and the operations log that show it. It withdraws replays that were abandoned.
func (t *Table) vacant(ctx context.Context, records []Record) (*connector.Snapshot, *opslog.State, error) {
	concerned := func(open opslog.OpenReplay) bool {
		return slices.ContainsFunc(open.Letters, func(l opslog.Letters) bool {
			return slices.ContainsFunc(records, func(r Record) bool { return r.At == l.Source() })
		})
	}
	var seen progress
	for {
		s, state, err := t.Settle(ctx)
		if err != nil {
			return nil, nil, err
		}
		open := state.TopicReplays(t.Path)
		i := slices.IndexFunc(open, concerned)
		if i < 0 {
			return s, state, nil
		}
		quiet := seen.quiet(s, t.Pipeline, &open[i])
		if time.Since(open[i].Since) > abandonedAfter && quiet > quietFor {
			if err := t.withdraw(ctx, s, state, &open[i]); err != nil {
				return nil, nil, err
			}
			continue
		}
		if err := reliability.Wait(ctx, pollEvery); err != nil {
			return nil, nil, err
		}
	}
}

// await waits until a replay through the topic is closed or withdrawn, and returns the operations log after that.
func (t *Table) await(ctx context.Context, seq int64) (*opslog.State, error) {
	var seen progress
	for {
		s, state, err := t.Settle(ctx)
		if err != nil {
			return nil, err
		}
		open := state.TopicReplays(t.Path)
		i := slices.IndexFunc(open, func(o opslog.OpenReplay) bool { return o.Seq == seq })
		if i < 0 {
			return state, nil
		}
		if seen.quiet(s, t.Pipeline, &open[i]) > patience {
			return nil, &RefusedError{fmt.Sprintf("members have accepted no record of the replay for %v: see whether they run and have the key (sluice_origins_refused_total), and run the same replay again", patience)}
		}
		if err := reliability.Wait(ctx, pollEvery); err != nil {
			return nil, fmt.Errorf("members have not read all records of the replay yet; run the same replay again to see the rest: %w", err)
		}
	}
}

// progress notes since when members have accepted no record of a replay.
type progress struct {
	intent, accepted int64
	since            time.Time
}

// quiet returns how long the table has accepted no record of a replay, as far as this process has watched.
func (w *progress) quiet(s *connector.Snapshot, pipeline string, open *opslog.OpenReplay) time.Duration {
	n := int64(0)
	done, _ := accepted(s, pipeline, open)
	for _, l := range done {
		n += l.Offsets.Len()
	}
	if w.since.IsZero() || w.intent != open.Seq || w.accepted != n {
		*w = progress{open.Seq, n, time.Now()}
	}
	return time.Since(w.since)
}

// versions returns, for each partition of the dead letters, the version of the txn that counts its accepted origins; 0
// if the table has no such txn.
func versions(s *connector.Snapshot, pipeline string, letters []opslog.Letters) map[connector.Partition]int64 {
	all := map[connector.Partition]int64{}
	for _, l := range letters {
		all[l.Source()] = s.Positions[l.Source().OriginsAppID(pipeline)]
	}
	return all
}

// accepted returns the dead letters of an open replay through the topic whose records the table has accepted. all is
// true if these are all dead letters of the replay. If the table was replaced, it has accepted none.
//
// If the table has lost a txn that counts them, because txns expire, accepted returns all dead letters of that
// partition, since a second replay could make second rows. But all is then false.
func accepted(s *connector.Snapshot, pipeline string, open *opslog.OpenReplay) (done []opslog.Letters, all bool) {
	if open.TableID != s.TableID {
		return nil, false
	}
	all = true
	for _, l := range open.Letters {
		intent, n := origin.Accepted(s.Positions[l.Source().OriginsAppID(pipeline)])
		if intent != open.Seq {
			n = l.Offsets.Len()
		}
		all = all && intent == open.Seq && n == l.Offsets.Len()
		var first offsets.Packer
		for offset := range l.Offsets.All() {
			if n--; n < 0 {
				break
			}
			first.Add(offset)
		}
		if set := first.Done(); set.Len() > 0 {
			done = append(done, opslog.LettersOf(l.Source(), set))
		}
	}
	return done, all
}

// closeTopic records that the table has accepted all records of a replay through the topic, unless the operations log has
// that already.
func (t *Table) closeTopic(ctx context.Context, intent int64) error {
	return t.end(ctx, opslog.ReplayClosed{Intent: intent, Table: t.Path}, intent, (*opslog.State).TopicReplays)
}
