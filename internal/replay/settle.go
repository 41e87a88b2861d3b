package replay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/sink/opslog"
)

// MoveTimeout is how long a move of positions without an outcome prevents replays of its topic. After that time the
// commit of the move cannot take effect any more, unless the command was given a longer time limit.
const MoveTimeout = time.Hour

// RefusedError says why a replay cannot start now.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

// Moving returns a [RefusedError] if a move of a topic's positions began within [MoveTimeout] and has no outcome.
// Members may then read records again whose dead letters a replay is about to make rows of.
func Moving(s *opslog.State, topic string) error {
	if m, open := s.OpenMove(topic); open && time.Since(m.Since) < MoveTimeout {
		return &RefusedError{fmt.Sprintf("%s moves positions of topic %s since %s (%s), and its outcome is not known: try again later",
			m.Operator, topic, m.Since.Format(time.RFC3339), m.Command)}
	}
	return nil
}

// Settle closes the table's open intents whose outcome the table shows, and the replays through the topic of which the
// table has accepted all records. It returns the newest snapshot, and the state of the operations log that it compared
// with this snapshot. Intents that are not decided stay open.
//
// It reads the operations log before the table. So if the txn for replays is neither the seq of an open intent nor the
// version that the intent continues, the intent was not committed: a later intent is announced only after the outcome
// of the one that it continues is recorded.
func (t *Table) Settle(ctx context.Context) (*connector.Snapshot, *opslog.State, error) {
	for {
		state, err := t.Log.State(ctx)
		if err != nil {
			return nil, nil, err
		}
		s, err := t.Table.Load(ctx)
		if err != nil {
			return nil, nil, err
		}
		closed := 0
		for _, open := range state.OpenReplays(t.Path) {
			outcome, decided := t.outcome(s, open)
			if !decided {
				continue
			}
			if err := t.closeOpen(ctx, open.Seq, outcome, -1, "settled by a later operation"); err != nil {
				return nil, nil, fmt.Errorf("record the outcome of replay %d: %w", open.Seq, err)
			}
			closed++
		}
		for _, open := range state.TopicReplays(t.Path) {
			if _, all := accepted(s, t.Pipeline, &open); !all {
				continue
			}
			if err := t.closeTopic(ctx, open.Seq); err != nil {
				return nil, nil, fmt.Errorf("record the end of replay %d: %w", open.Seq, err)
			}
			closed++
		}
		if closed == 0 {
			return s, state, nil
		}
	}
}

// outcome returns the outcome of an intent by the newest version of the table; false if it is not decided.
func (t *Table) outcome(s *connector.Snapshot, open opslog.OpenReplay) (o opslog.Outcome, decided bool) {
	switch at := s.Positions[idempotency.ReplayAppID(t.Pipeline, s.TableID)]; {
	case open.TableID != s.TableID:
		return opslog.Conflict, true
	case at == open.Seq:
		return opslog.Committed, true
	case at == open.After:
		return "", false
	}
	return opslog.Conflict, true
}

// Withdraw ends all replays of the table that began longer ago than older: their commits, and produced records that
// members have not accepted yet, cannot become rows any more. It first settles the open intents. It returns the
// intents that stay open, which are not that old.
//
// For intents it commits an empty replay, after which the table refuses the commits of all earlier ones.
func (t *Table) Withdraw(ctx context.Context, older time.Duration) ([]opslog.OpenReplay, error) {
	old := func(o opslog.OpenReplay) bool { return time.Since(o.Since) > older }
	for {
		s, state, err := t.Settle(ctx)
		if err != nil {
			return nil, err
		}
		open, topical := state.OpenReplays(t.Path), state.TopicReplays(t.Path)
		i := slices.IndexFunc(topical, old)
		switch {
		case slices.ContainsFunc(open, old):
			err = t.withdraw(ctx, s, state, nil)
		case i >= 0:
			err = t.withdraw(ctx, s, state, &topical[i])
		default:
			return append(open, topical...), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// withdraw commits a replay without rows that continues snapshot s, so that the table refuses all earlier intents that
// are not decided. Unless topical is nil, it also closes that replay through the topic. If another operation came
// first, it returns nil and has withdrawn nothing: the caller settles and checks again.
func (t *Table) withdraw(ctx context.Context, s *connector.Snapshot, state *opslog.State, topical *opslog.OpenReplay) error {
	r := &plan.Replay{Pipeline: t.Pipeline, TableID: s.TableID, After: s.Positions[idempotency.ReplayAppID(t.Pipeline, s.TableID)]}
	body := opslog.ReplayIntent{Table: t.Path, TableID: r.TableID, After: r.After}
	if topical != nil {
		body.Withdraws = topical.Seq
		body.Accepted, _ = accepted(s, t.Pipeline, topical)
		r.Origins = versions(s, t.Pipeline, topical.Letters)
	}
	intent, err := t.announce(ctx, body, state)
	if again(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("withdraw a replay: %w", err)
	}
	r.Intent = intent.Seq
	committed, err := t.Table.Commit(ctx, r.Commit("", nil), r.Precondition)
	switch {
	case again(err):
		return t.close(ctx, intent.Seq, opslog.Conflict, -1, err.Error())
	case err != nil: // settling finds the outcome
		return fmt.Errorf("withdraw a replay: %w", err)
	}
	return t.close(ctx, intent.Seq, opslog.Committed, committed.Version, "")
}
