package delta

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/properties"
)

// create writes version 0. If another writer was faster, it adopts that writer's table, and [Table.Load] then checks
// its schema. checked is when the log was last seen empty; the error is deltalog.ErrNoTable if no schema is configured.
func (t *Table) create(ctx context.Context, checked time.Time) error {
	if t.opt.Schema == nil {
		return deltalog.ErrNoTable
	}
	partitionBy, err := json.Marshal(append([]string{}, t.opt.Schema.Partitions()...))
	if err != nil {
		return fmt.Errorf("create the table: %w", err)
	}
	now := time.Now().UnixMilli()
	id, txn := uuid.NewString(), uuid.NewString()
	configuration, parameter, err := t.opt.properties()
	if err != nil {
		return err
	}
	body, err := deltalog.Encode([]deltalog.Action{
		deltalog.CommitInfo{
			Timestamp: now, Operation: "CREATE TABLE",
			OperationParameters: map[string]string{"isManaged": "false", "description": t.opt.Comment, "partitionBy": string(partitionBy), "properties": parameter},
			IsolationLevel:      "Serializable", IsBlindAppend: true, EngineInfo: t.opt.Engine, TxnID: txn,
		},
		deltalog.Protocol{MinReaderVersion: readerVersion, MinWriterVersion: writerVersion},
		deltalog.Metadata{
			ID: id, Format: deltalog.Format{Provider: "parquet"}, SchemaString: t.opt.Schema.DeltaJSON(), CreatedTime: &now,
			Description: t.opt.Comment, PartitionColumns: t.opt.Schema.Partitions(), Configuration: configuration,
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

// properties returns the properties of a new table, nil if there are none, and the same as JSON for commitInfo. The error
// is a hold.Error with hold.TableUnsupported if one of them would make a table that this version must not write.
func (o *Options) properties() (all map[string]string, parameter string, err error) {
	if len(o.Properties) == 0 {
		return nil, "{}", nil
	}
	for _, key := range slices.Sorted(maps.Keys(o.Properties)) {
		if err := properties.Check(key, o.Properties[key]); err != nil {
			return nil, "", unsupported("it would get a property: %v", err)
		}
	}
	text, err := json.Marshal(o.Properties)
	if err != nil {
		return nil, "", fmt.Errorf("properties of the table: %w", err)
	}
	return o.Properties, string(text), nil
}
