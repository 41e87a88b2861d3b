package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/classify"
	"sluice/health/lettercount"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/internal/lookup"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
	"sluice/sink/opslog"
)

// judge counts the unresolved dead letters by topic, and stores the counts in o. It searches the tables for rows of
// their records. If a table cannot be read, o gets a failure for each of its topics.
func (w *letterWatch) judge(ctx context.Context, o *outlook) {
	byTable, strange := map[string][]string{}, 0
	for _, topic := range w.tally.Topics() {
		t, meant, err := w.config.Route(topic)
		if !meant || err != nil || t.IsLetters() { // records of this topic go to no table of this pipeline
			continue
		}
		if _, ours := o.topics[topic]; !ours {
			if strange++; strange > maxStrange {
				continue
			}
		}
		byTable[t.Table] = append(byTable[t.Table], topic)
	}
	if strange > maxStrange {
		o.notes = append(o.notes, fmt.Sprintf("dead letters about %d topics that do not exist are not counted", strange-maxStrange))
	}
	for topic := range o.topics {
		// An empty count; it stays empty unless the tally has dead letters of the topic.
		o.counts[topic] = make(map[classify.Class]int64)
	}
	w.feeds = byTable
	maps.DeleteFunc(w.followers, func(table string, _ *delta.Follower) bool { return byTable[table] == nil })
	for _, table := range slices.Sorted(maps.Keys(byTable)) {
		if err := w.judgeTable(ctx, o, table, byTable[table]); err != nil {
			o.fail(fmt.Errorf("table %s: %w", table, err), byTable[table]...)
		}
	}
}

// judgeTable judges those dead letters of the topics of one table that no earlier poll judged: it finds which of them
// have rows. Then it counts the unresolved dead letters of these topics and stores the counts in o. If Kafka does not
// return the log bounds of a topic, only this topic fails.
func (w *letterWatch) judgeTable(ctx context.Context, o *outlook, table string, topics []string) error {
	if err := w.stands(table); err != nil {
		return err
	}
	f := w.followers[table]
	if f == nil {
		f = delta.NewFollower(objstore.Sub(w.tables, table), w.guard)
		w.followers[table] = f
	}
	if err := w.followTable(ctx, f, topics); err != nil {
		return err
	}
	state := f.State()
	position := func(p idempotency.Partition) int64 {
		if state == nil {
			return 0
		}
		return state.Txns[p.AppID(w.config.Pipeline)].Version
	}
	for _, topic := range topics {
		logs, err := w.logs(ctx, w.tally.Beyond(topic, position))
		if err != nil {
			o.fail(err, topic)
			continue
		}
		for {
			parts := w.tally.Unjudged(topic, position, w.atOnce)
			if len(parts) == 0 {
				break
			}
			if err := w.judgeParts(ctx, f, topic, parts); err != nil {
				return err
			}
		}
		counts := w.tally.Count(topic, func(p idempotency.Partition) lettercount.Position { return logs.Position(p, position(p)) }, resolvedBy(o.state))
		// A topic that only dead letters name gets no series while its count is 0. But if it has a series already, this
		// shows the 0, which ends the alert at once.
		if _, ours := o.topics[topic]; ours || len(counts) > 0 || w.counted[topic] != nil {
			o.counts[topic] = counts
		}
		if _, cannot := w.unlogged[topic]; cannot {
			o.notes = append(o.notes, fmt.Sprintf("table %s cannot show which records of topic %s it has: all their dead letters count", table, topic))
		}
	}
	return nil
}

// logs fetches the log bounds of partitions of one topic. The caller must have read the dead letters and the table
// before, so that a record whose offset is after the end of the log was lost, and not produced later. If the request
// fails for one partition, logs fails for all of them.
func (w *letterWatch) logs(ctx context.Context, partitions []idempotency.Partition) (*lookup.Logs, error) {
	if len(partitions) > 0 {
		if err := w.stands(""); err != nil {
			return nil, err
		}
	}
	asking, cancel := context.WithTimeout(ctx, lettersTimeout)
	defer cancel()
	logs, err := lookup.FindLogs(asking, w.find, w.reader.Log, partitions)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if err := logs.Failed[p]; err != nil {
			return nil, fmt.Errorf("partition %d: %w", p.ID, err)
		}
	}
	return logs, nil
}

// followTable reads the commits since the last poll. It tells the tally which positions were set back and which rows
// replays added. If the commits may have changed in another way which records of a topic have rows, the tally drops its
// judgements about that topic.
func (w *letterWatch) followTable(ctx context.Context, f *delta.Follower, topics []string) error {
	change, err := w.follow(ctx, f)
	if err != nil {
		return err
	}
	for appID, to := range change.Back {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.TableID == "" && id.Pipeline == w.config.Pipeline {
			w.tally.Back(id.Partition, to)
		}
	}
	for _, topic := range topics {
		ids := ""
		if state := f.State(); state != nil {
			ids = lookup.TopicIDs(state, topic)
		}
		since, cannot := w.unlogged[topic]
		if change.Anew || change.Others || ids != w.ids[topic] || cannot && time.Since(since) > retryAfter {
			w.tally.Again(topic)
			delete(w.unlogged, topic)
		}
		w.ids[topic] = ids
	}
	w.followReplays(f.State(), change)
	return nil
}

// follow reads the commits of a table since the last call, within a time limit.
func (w *letterWatch) follow(ctx context.Context, f *delta.Follower) (delta.Change, error) {
	asking, cancel := context.WithTimeout(ctx, 4*lettersTimeout) // after a long outage there may be a hundred commits to read
	defer cancel()
	change, err := f.Follow(asking)
	if last := w.guard.Status().Err; err != nil && last != nil && asking.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(asking), last)
	}
	return change, err
}

// followReplayed follows the tables for which the operations log has replays that the last count does not know, and
// reports whether it followed any. A table that cannot be read now is left for the next call.
func (w *letterWatch) followReplayed(ctx context.Context, state *opslog.State) (followed bool) {
	now := state.Replayed()
	for _, table := range slices.Sorted(maps.Keys(w.feeds)) {
		topics := w.feeds[table]
		f := w.followers[table]
		unknown := func(topic string) bool { return now[topic] != w.replayed[topic] && slices.Contains(w.sound, topic) }
		if f == nil || !slices.ContainsFunc(topics, unknown) || w.stands(table) != nil || w.followTable(ctx, f, topics) != nil {
			continue // the next poll reports an error
		}
		for _, topic := range topics {
			w.replayed[topic] = now[topic]
		}
		followed = true
	}
	return followed
}

// followReplays makes the dead letters void for which a replay has added rows. It takes these rows from the new
// commits and does not read the table. As in judgeParts, a row counts only if the table proves its topic id.
//
// If another program has changed the table in these commits, too, followReplays does nothing: followTable has then
// made the tally drop its judgements, so the next poll reads the table.
func (w *letterWatch) followReplays(state *deltalog.State, change delta.Change) {
	if change.Others {
		return
	}
	added := map[idempotency.Partition][]offsets.Set{}
	for _, r := range change.Replayed {
		p, ok := r.Source()
		if _, cannot := w.unlogged[p.Topic]; ok && !cannot {
			added[p] = append(added[p], r.Offsets)
		}
	}
	for p, sets := range added {
		if lookup.HasItsRows(state, p) || delta.HasTopicIDs(state) {
			w.tally.HasRows(p, offsets.Union(sets...))
		}
	}
}

// judgeParts searches the table for rows of dead letters, and makes those void in the tally whose row it finds. As in
// deadletters list, a row counts only if the table proves that it has the topic id of the dead letter. If the table
// lacks the columns to find rows, all of these dead letters count as unresolved, and w.unlogged gets the topic.
func (w *letterWatch) judgeParts(whole context.Context, f *delta.Follower, topic string, parts []lettercount.Part) error {
	ctx, cancel := context.WithTimeout(whole, judgeLetters)
	defer cancel()
	var where []scan.Where
	at := map[int32][]int{}
	for i, part := range parts {
		for _, offset := range part.Offsets {
			where = lookup.AddPlace(where, topic, part.Source.ID, offset)
		}
		at[part.Source.ID] = append(at[part.Source.ID], i)
	}
	void, proven := make([][]int64, len(parts)), make([]bool, len(parts))
	for i, part := range parts {
		proven[i] = lookup.HasItsRows(f.State(), part.Source)
	}
	rows, resting := 0, newPace()
	err := f.Places(ctx, judgeBytes, where, func(row scan.Place) error {
		for _, i := range at[row.Partition] {
			if lookup.OwnerOf(row, parts[i].Source, proven[i]) == lookup.ItsRow && parts[i].Has(row.Offset) {
				void[i] = append(void[i], row.Offset)
			}
		}
		if rows++; rows%100_000 == 0 {
			return resting.rest(ctx)
		}
		return nil
	})
	if _, held := errors.AsType[*hold.Error](err); held {
		w.unlogged[topic], void, err = time.Now(), make([][]int64, len(parts)), nil
	}
	if err != nil {
		if ctx.Err() != nil && whole.Err() == nil { // earlier judgements are kept, so smaller reads make progress
			w.atOnce = max(w.atOnce/8, judgeMin)
		}
		return err
	}
	for i, part := range parts {
		w.tally.Judged(part, void[i])
	}
	return nil
}
