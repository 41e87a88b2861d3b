package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/idempotency/offsets"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/sink/opslog"
)

// LettersPlan is the plan of a decision about dead letters.
type LettersPlan struct {
	Pipeline string           `json:"pipeline"`
	Kind     opslog.Kind      `json:"kind"`
	Count    int              `json:"count"`
	Letters  []opslog.Letters `json:"letters"`
}

// PlanDiscard plans to discard dead letters: no replay makes rows of their records, and they do not count as unresolved
// any more. PlanReopen undoes that.
func PlanDiscard(ctx context.Context, a *Access, q LetterSelection) (*Decision, error) {
	return planLetters(ctx, a, q, letterDecision{
		verb: "discard", done: "discarded", becomes: LetterDiscarded, kind: opslog.KindDiscard,
		from: []LetterState{LetterUnresolved, LetterUnknown, LetterParked, LetterAcknowledged, LetterReplaying},
		body: func(l []opslog.Letters) opslog.Body { return opslog.Discard{Letters: l} },
	})
}

// PlanAcknowledge plans to acknowledge dead letters: they stay as they are, and do not count as unresolved any more.
func PlanAcknowledge(ctx context.Context, a *Access, q LetterSelection) (*Decision, error) {
	return planLetters(ctx, a, q, letterDecision{
		verb: "acknowledge", done: "acknowledged", becomes: LetterAcknowledged, kind: opslog.KindAcknowledge,
		from: []LetterState{LetterUnresolved, LetterUnknown, LetterParked},
		body: func(l []opslog.Letters) opslog.Body { return opslog.Acknowledge{Letters: l} },
	})
}

// PlanReopen plans to undo that dead letters were discarded or acknowledged: they get the state that they would have
// without this decision.
func PlanReopen(ctx context.Context, a *Access, q LetterSelection) (*Decision, error) {
	return planLetters(ctx, a, q, letterDecision{
		verb: "reopen", done: "reopened", kind: opslog.KindReopen, from: []LetterState{LetterDiscarded, LetterAcknowledged},
		body: func(l []opslog.Letters) opslog.Body { return opslog.Reopen{Letters: l} },
	})
}

// letterDecision is a kind of decision about dead letters.
type letterDecision struct {
	verb, done string
	becomes    LetterState // "" if the dead letter may get any state
	kind       opslog.Kind
	from       []LetterState // the states in which a dead letter can be chosen
	body       func([]opslog.Letters) opslog.Body
}

func planLetters(ctx context.Context, a *Access, q LetterSelection, k letterDecision) (*Decision, error) {
	r, end, err := lookup.NewReader(ctx, a.Config, q.Within)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	chosen, err := q.choose(ctx, a, r, k.becomes, k.from...)
	if err != nil {
		return nil, err
	}
	entries := chosen.entries()
	number := Counting(int64(chosen.n), "dead letter")
	d := &Decision{
		Text: fmt.Sprintf("pipeline %s: %s %s", a.Config.Pipeline, k.verb, number), Done: k.done + " " + number,
		Notes: chosen.notes,
	}
	if len(entries) == 0 {
		return d, ErrNothingToDo
	}
	if err := chosen.withdrawable(a); err != nil {
		return nil, err
	}
	for _, letters := range entries {
		d.bodies = append(d.bodies, k.body(letters))
	}
	d.Plan = LettersPlan{Pipeline: a.Config.Pipeline, Kind: k.kind, Count: chosen.n, Letters: slices.Concat(entries...)}
	d.judge = func(s *opslog.State) ([]string, error) { return nil, undecidedLetters(s, slices.Concat(entries...)) }
	if chosen.has(LetterReplaying) {
		tables := chosen.tables(a)
		d.before = func(ctx context.Context, by By) error {
			for _, path := range tables {
				if err := withdrawReplays(ctx, a, path, by); err != nil {
					return err
				}
			}
			return nil
		}
		d.Notes = append(d.Notes, "an earlier replay of some of them ended without an outcome: it is withdrawn first")
		return d, nil // judge would refuse them until the replay is withdrawn
	}
	return d.decide(ctx, a)
}

// withdrawAfter is the age from which a replay counts as abandoned if the operations log has its intent and no outcome;
// then it can be withdrawn. The commit of a running replay takes seconds; a replay through the topic may take longer. If
// it still runs, it finds out and tries again.
const withdrawAfter = time.Minute

// withdrawable returns an error if one of the dead letters is part of a replay that probably still runs.
func (c *chosenLetters) withdrawable(a *Access) error {
	for _, path := range c.tables(a) {
		for _, open := range append(c.decisions.OpenReplays(path), c.decisions.TopicReplays(path)...) {
			if time.Since(open.Since) < withdrawAfter && c.names(open.Letters) {
				return stillReplaying(open)
			}
		}
	}
	return nil
}

// names reports whether dead letters of an entry are among the chosen ones.
func (c *chosenLetters) names(letters []opslog.Letters) bool {
	for _, l := range letters {
		if s := c.sources[l.Source()]; s != nil {
			at := l.Offsets.From(0)
			if slices.ContainsFunc(s.letters, func(l foundLetter) bool { return at.Has(l.record) }) {
				return true
			}
		}
	}
	return false
}

func stillReplaying(open opslog.OpenReplay) error {
	return fail.Refused(fmt.Errorf("%s replays dead letters into table %s since %s: try again in a minute", open.Operator, open.Table, open.Since.Format(time.RFC3339)))
}

// undecidedLetters returns an error if one of the dead letters was replayed since the operator selected them, or if an
// open intent may still replay it.
func undecidedLetters(s *opslog.State, all []opslog.Letters) error {
	for _, l := range all {
		states := s.Letters(l.Source())
		if gone := l.Offsets.Within(offsets.Union(states.Replayed, states.Replaying)); gone.Len() > 0 {
			return fmt.Errorf("dead letters of %s:%d were replayed or are being replayed since they were selected, at offsets %s: select them again", l.Topic, l.Partition, brief(gone))
		}
	}
	return nil
}

// brief returns a set as text of a bounded length.
func brief(s offsets.Set) string {
	const longest = 100
	text := s.String()
	if len(text) > longest {
		return text[:longest] + "…"
	}
	return text
}

// withdrawReplays finds out which open replays of a table were committed. If one of the others is older than
// withdrawAfter, it withdraws all of them. It returns an error if a replay stays open.
func withdrawReplays(ctx context.Context, a *Access, path string, by By) error {
	t, end, err := openReplay(ctx, a, path, by, nil)
	if err != nil {
		return err
	}
	defer end()
	open, err := t.Withdraw(ctx, withdrawAfter)
	if err != nil {
		return fail.Dependency(err)
	}
	for _, o := range open {
		if len(o.Letters) > 0 {
			return stillReplaying(o)
		}
	}
	return nil
}
