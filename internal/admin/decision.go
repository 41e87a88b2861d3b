package admin

import (
	"context"
	"errors"
	"fmt"

	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// ErrNothingToDo means that the operations log already has the effect of a decision.
var ErrNothingToDo = errors.New("nothing to do")

// Decision is a planned operation of the operations log. [Record] writes it; a dry run only shows it.
type Decision struct {
	Text  string   // what Record will write, in words
	Done  string   // what Record has written, in words
	Plan  any      // what Record will write, as a struct for JSON
	Notes []string // facts in the operations log that the operator should know, such as an earlier pause

	bodies []opslog.Body // the entries that Record writes, in order
	// before, unless nil, runs before judge and before the entries are written. Such a decision is planned without
	// decide.
	before func(ctx context.Context, by By) error
	// judge checks a state of the operations log: the current one when the decision is planned, and the one that each
	// entry extends. It returns notes for the operator. Its error is ErrNothingToDo if the log already has the effect
	// of the decision; any other error refuses it.
	judge func(s *opslog.State) (notes []string, err error)
}

// decide calls judge with the current log. It returns the decision with its notes even if judge refuses it.
func (d *Decision) decide(ctx context.Context, a *Access) (*Decision, error) {
	log, err := a.operations(ctx)
	if err != nil {
		return nil, err
	}
	s, err := log.State(ctx)
	if err != nil {
		return nil, failedOperation(opslog.Entry{}, err)
	}
	notes, err := d.judge(s)
	d.Notes = append(d.Notes, notes...)
	return d, refusedDecision(err)
}

// Record writes a decision to the operations log and returns its entry, the last one if it takes several. It returns
// [ErrNothingToDo] if the log has got the same effect since the plan. If by has an Idempotency-Key, Record refuses a
// decision that takes several entries. If a later one of several entries fails, the earlier ones stay in force; the
// same command then decides the rest.
func Record(ctx context.Context, a *Access, d *Decision, by By) (RecordedEntry, error) {
	if n := len(d.bodies); n > 1 && by.Once != (opslog.Once{}) {
		return RecordedEntry{}, fail.Refused(fmt.Errorf("the decision takes %d entries of the operations log, and an Idempotency-Key is for one: select at most %d dead letters at a time, or send no key", n, opslog.MaxLetters))
	}
	log, err := a.operations(ctx)
	if err != nil {
		return RecordedEntry{}, err
	}
	if d.before != nil {
		if err := d.before(ctx, by); err != nil {
			return RecordedEntry{}, err
		}
	}
	var e opslog.Entry
	for _, body := range d.bodies {
		var refused error
		e, err = log.append(ctx, by, body, func(s *opslog.State) error {
			_, refused = d.judge(s)
			return refused
		})
		if refused != nil {
			return RecordedEntry{}, refusedDecision(refused)
		}
		if err != nil {
			return RecordedEntry{}, err
		}
	}
	return RecordedEntry{e, e.Hash()}, nil
}

func refusedDecision(err error) error {
	if err == nil || errors.Is(err, ErrNothingToDo) {
		return err
	}
	return fail.Refused(err)
}
