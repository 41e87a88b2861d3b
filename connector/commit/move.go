package commit

import (
	"context"
	"fmt"

	"sluice/connector"
	"sluice/connector/plan"
)

// Move commits the moves of an operator, all of them or none. The precondition, checked on the log prefix that the
// commit extends, is that the table and each position are still those that the operator saw. The error is Fenced if
// they are not, a [hold.Error] with hold.TableReplaced, or an error of [connector.Table], including
// [connector.ErrUndecided].
func Move(ctx context.Context, t connector.Table, m *plan.Moves) (*connector.Snapshot, error) {
	s, err := t.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to read the table: %w", err)
	}
	p := m.Plan(s)
	if s, err = t.Commit(ctx, &p.Commit, func(s *connector.Snapshot) error { return m.Precondition(p, s) }); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return s, nil
}
