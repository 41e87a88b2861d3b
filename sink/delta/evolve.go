package delta

import (
	"context"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/sink/delta/deltalog"
)

// A commit whose data files have columns that the table lacks adds them in the same version: its metaData action stands
// beside the adds and the txns. So there is no version in which a file has a column that the schema does not have, and
// no order of steps in which a crash could leave one without the other.

// evolution is what a commit changes in the schema of the table: from is the schema of the table as of the snapshot for
// which the rows were built, to is the schema of the data files.
type evolution struct{ from, to *schema.Schema }

// on returns the schema of a table that gets the changes of e, which is table itself if there are none. The table may
// have changed since the snapshot: other members may have added columns as well. The error says what does not fit any
// more.
//
// The rows must still fit the table without what e adds, so that e adds only what the table lacked as of the snapshot.
// Otherwise a column that was dropped meanwhile would come back.
func (e evolution) on(table *schema.Schema) (*schema.Schema, error) {
	if err := table.Fits(e.from); err != nil {
		return nil, err
	}
	if err := table.SameValues(e.to); err != nil {
		return nil, err
	}
	return table.Extended(e.to)
}

// withColumns returns m with the schema columns. All the rest stays as it is: the id, by which members recognize their
// table, and the properties, which oblige all writers.
func withColumns(m deltalog.Metadata, columns *schema.Schema) deltalog.Metadata {
	m.SchemaString = columns.DeltaJSON()
	return m
}

// AddColumns adds to the table, in a version without rows, what to has and the table lacks: see [schema.Schema.Extended].
// The plan of the operator was made for the schema from. pre and the errors are those of [Table.Commit]; the error is
// Fenced if the table has lost a column of from meanwhile, or has got one that does not fit to.
func (t *Table) AddColumns(
	ctx context.Context, by connector.Moved, from, to *schema.Schema, pre func(*connector.Snapshot) error,
) (*connector.Snapshot, error) {
	return t.commit(ctx, &connector.Commit{Operation: operationAddColumns, Moved: &by}, nil, &evolution{from: from, to: to}, pre)
}

// operationAddColumns is the operation of a version that an operator's command wrote, as other engines call it.
const operationAddColumns = "ADD COLUMNS"

// evolved logs and counts the columns that a committed version has added.
func (t *Table) evolved(ctx context.Context, p *proposal) {
	if p.changes.None() {
		return
	}
	t.metrics.columns.Add(float64(len(p.changes.Added)))
	if len(p.changes.Added) > 0 {
		t.log.InfoContext(ctx, "added columns", "batch_id", p.batch, "version", p.version, "columns", p.changes.Names())
	}
	if len(p.changes.Relaxed) > 0 {
		t.log.InfoContext(ctx, "made columns nullable", "batch_id", p.batch, "version", p.version, "columns", p.changes.Relaxed)
	}
}
