package delta

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"sluice/sink/delta/deltalog"
)

// create writes version 0. If another writer was faster, it adopts that writer's table, and [Table.Load] then checks
// its schema. checked is when the log was last seen empty; the error is deltalog.ErrNoTable if no schema is configured.
func (t *Table) create(ctx context.Context, checked time.Time) error {
	if t.opt.Schema == nil {
		return deltalog.ErrNoTable
	}
	now := time.Now().UnixMilli()
	id, txn := uuid.NewString(), uuid.NewString()
	body, err := deltalog.Encode([]deltalog.Action{
		deltalog.CommitInfo{
			Timestamp: now, Operation: "CREATE TABLE",
			OperationParameters: map[string]string{"isManaged": "false", "description": "", "partitionBy": "[]", "properties": "{}"},
			IsolationLevel:      "Serializable", IsBlindAppend: true, EngineInfo: t.opt.Engine, TxnID: txn,
		},
		deltalog.Protocol{MinReaderVersion: readerVersion, MinWriterVersion: writerVersion},
		deltalog.Metadata{
			ID: id, Format: deltalog.Format{Provider: "parquet"}, SchemaString: t.opt.Schema.DeltaJSON(), CreatedTime: &now,
		},
	})
	if err != nil {
		return fmt.Errorf("create the table: %w", err)
	}
	result, err := t.append(ctx, t.proposal(0, txn, body, checked), nil)
	if err != nil {
		return fmt.Errorf("create the table: %w", err)
	}
	if result == committed {
		t.log.InfoContext(ctx, "table created", "table_id", id, "schema", t.opt.Schema.DDL())
		t.own = &ownCommit{version: 0, txnID: txn}
	}
	return t.reload(ctx, t.store)
}
