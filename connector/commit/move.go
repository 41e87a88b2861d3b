package commit

import (
	"context"
	"fmt"

	"sluice/connector"
	"sluice/connector/plan"
)

// Move commits the moves of an operator all together, or none of them. PRE, in the prefix that the commit extends: the table and each
// position are still those that were shown. Errors: Fenced if they are not; a hold.Error with hold.TableReplaced; those of
// [connector.Table] else, ErrUndecided among them.
func Move(ctx context.Context, t connector.Table, m *plan.Moves) (*connector.Snapshot, error) {
	s, err := t.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	p := m.Plan(s)
	if s, err = t.Commit(ctx, &p.Commit, func(s *connector.Snapshot) error { return m.Precondition(p, s) }); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return s, nil
}
