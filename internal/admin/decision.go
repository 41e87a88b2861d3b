package admin

import (
	"context"
	"errors"

	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// ErrNothingToDo says that the operations log says already what a decision would say.
var ErrNothingToDo = errors.New("nothing to do")

// Decision is an operation that somebody is about to write into the operations log. A dry run ends with it.
type Decision struct {
	Text  string   // what would be done
	Done  string   // what was done, once it was recorded
	Plan  any      // the same for programs
	Notes []string // what the log says already

	body opslog.Body
	// judge looks at what stands in the log, once before somebody decides and again in the very state that the operation
	// extends: ErrNothingToDo, or another error if the operation is refused, and what to say in any case.
	judge func(s *opslog.State) (notes []string, err error)
}

// decide judges a decision by the log as it is. Its notes are there even if it is refused.
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

// Record writes a decision into the operations log. The error is [ErrNothingToDo] if somebody else has done it since it was
// made.
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
