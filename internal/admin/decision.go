package admin

import (
	"context"
	"errors"

	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// ErrNothingToDo means that the operations log has the content of a decision already.
var ErrNothingToDo = errors.New("nothing to do")

// Decision is an operation that an operator is about to write to the operations log. A dry run ends with it.
type Decision struct {
	Text  string   // what would be done
	Done  string   // what was done, once it was recorded
	Plan  any      // the same for programs
	Notes []string // what the log says already

	body opslog.Body
	// judge checks the state of the log, once before the operator decides and again in the state that the operation
	// extends. It returns ErrNothingToDo, or another error if the operation is refused, and the notes for the operator.
	judge func(s *opslog.State) (notes []string, err error)
}

// decide judges a decision by the current log. It returns the decision with its notes even if it is refused.
func (d *Decision) decide(ctx context.Context, a *Access) (*Decision, error) {
	log, err := a.operations(ctx)
	if err != nil {
		return nil, err
	}
	s, err := log.State(ctx)
	if err != nil {
		return nil, failedOperation(opslog.Entry{}, err)
	}
	d.Notes, err = d.judge(s)
	return d, refusedDecision(err)
}

// Record writes a decision to the operations log. The error is [ErrNothingToDo] if another operator has written it since the
// plan was made.
func Record(ctx context.Context, a *Access, d *Decision, by By) (RecordedEntry, error) {
	log, err := a.operations(ctx)
	if err != nil {
		return RecordedEntry{}, err
	}
	var refused error
	e, err := log.append(ctx, by, d.body, func(s *opslog.State) error {
		_, refused = d.judge(s)
		return refused
	})
	if refused != nil {
		return RecordedEntry{}, refusedDecision(refused)
	}
	if err != nil {
		return RecordedEntry{}, err
	}
	return RecordedEntry{e, e.Hash()}, nil
}

func refusedDecision(err error) error {
	if err == nil || errors.Is(err, ErrNothingToDo) {
		return err
	}
	return fail.Refused(err)
}
