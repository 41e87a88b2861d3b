package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/sink/delta/datafile"
	"sluice/sink/delta/deltalog"
)

// maxStaged is how old data files may be when they are committed. VACUUM of another engine deletes files that no
// version names after 7 days, and operators can force a shorter time.
const maxStaged = 12 * time.Hour

// staged are the data files that one call of Stage put into the store, and whether a version names them.
type staged struct {
	batch string // id of the batch, for log lines
	table string // id of the table for which the files were encoded
	evolution
	at    time.Time // when the staging began
	adds  []deltalog.Add
	rows  int64
	bytes int64
	// partitioned is true if the table has partitions, so that the files may be very many.
	partitioned bool

	// mayBeNamed is true while a version that names the files may exist: from its first put until it is known to be
	// another writer's. named is true once such a version is committed.
	mayBeNamed, named, discarded bool
}

func (f *staged) setMayBeNamed(may bool) {
	if f != nil {
		f.mayBeNamed = may
	}
}

func (f *staged) setNamed() {
	if f != nil {
		f.named = true
	}
}

// Stage implements connector.Table. Each file has a new random name, so repeating its put does no harm.
func (t *Table) Stage(ctx context.Context, s *connector.Snapshot, batch string, pieces []connector.Piece, progress func(done int, encoded int64)) (*connector.Staged, error) {
	columns, ok := s.Schema.(*schema.Schema)
	table, known := s.Table.(*schema.Schema)
	if !ok || !known || t.head == nil {
		return nil, errors.New("stage: the snapshot is not one of this table")
	}
	partitions, err := newPartitioner(columns)
	if err != nil {
		return nil, err
	}
	f := &staged{
		batch: batch, table: s.TableID, evolution: evolution{from: table, to: columns}, at: time.Now(), partitioned: partitions != nil,
	}
	out := &connector.Staged{Files: f}
	options := t.encoding(columns)
	options.Fit = s.Fit
	puts := t.newPuts(ctx, batch, f.partitioned)
	progress = puts.counting(progress)
	err = t.encode(puts.ctx, columns, partitions, pieces, options, progress, func(file datafile.File) error {
		if err := puts.ctx.Err(); err != nil { // a put has failed, so that no more files are needed
			return err
		}
		key := fmt.Sprintf("part-%05d-%s.c000.zstd.parquet", len(f.adds), uuid.New())
		var values map[string]*string
		if partitions != nil {
			values = partitions.values[file.Partition]
			key = directory(partitions.columns, values) + key
		}
		// f.adds has the file before its put: a failed put may still have stored it, and Discard must then delete it.
		add := deltalog.Add{
			Path: deltalog.URI(key), Size: file.Size, ModificationTime: time.Now().UnixMilli(), DataChange: true,
			PartitionValues: values, Stats: file.Stats,
		}
		f.adds = append(f.adds, add)
		f.rows, f.bytes = f.rows+file.Rows, f.bytes+file.Size
		puts.needed += neededFor(&add)
		return puts.put(key, file)
	})
	err = puts.end(err)
	out.Count, out.Rows, out.Bytes = len(f.adds), f.rows, f.bytes
	if err != nil {
		t.Discard(ctx, out)
		return nil, canceledBy(ctx, err)
	}
	if f.partitioned && progress != nil {
		progress(puts.done, 0) // the goroutines have put the last files
	}
	t.judge(ctx, f)
	return out, nil
}

// neededFor returns about the memory that a commit needs for a file of a table with partitions: its add, its values and
// its line in the body of the commit.
func neededFor(add *deltalog.Add) int64 {
	const structs, line = 600, 200 // the add with the map of its values and the key of its partition; the names in its JSON
	size := structs + line + 2*(len(add.Path)+len(add.Stats))
	for name, value := range add.PartitionValues {
		if size += len(name); value != nil {
			size += 3 * len(*value) // in the key, in the map, in the JSON
		}
	}
	return int64(size)
}

// A batch has too many small files if it has more than tooManyFiles and their average is smaller than smallFile. Readers
// then spend their time on requests, and the log grows by megabytes with each commit.
const tooManyFiles = 1000

// judge counts and logs a batch with too many small files.
func (t *Table) judge(ctx context.Context, f *staged) {
	if !f.partitioned {
		return
	}
	if n := int64(len(f.adds)); n <= tooManyFiles || f.bytes/n >= smallFile {
		t.crowded.Over(ctx, t.log, "batches have no longer too many small data files", "batch_id", f.batch)
		return
	}
	t.metrics.crowded.Inc()
	t.crowded.Failed(ctx, t.log, slog.LevelWarn, "a batch has too many small data files; partition_by has too many different values",
		"batch_id", f.batch, "partition_by", f.to.Partitions(), "files", len(f.adds), "rows", f.rows, "bytes", f.bytes)
}

// Rehearse implements connector.Table. It encodes the pieces without storing anything.
func (t *Table) Rehearse(ctx context.Context, s *connector.Snapshot, pieces []connector.Piece) error {
	columns, ok := s.Schema.(*schema.Schema)
	if !ok || t.head == nil {
		return errors.New("rehearse: the snapshot is not one of this table")
	}
	options := t.encoding(columns)
	options.Fit = s.Fit
	options.TargetSize = 1 // the smallest size, so that one row group at a time is in memory
	partitions, err := newPartitioner(columns)
	if err != nil {
		return err
	}
	if err := t.encode(ctx, columns, partitions, pieces, options, nil, func(datafile.File) error { return nil }); err != nil {
		return canceledBy(ctx, err)
	}
	return nil
}

// OffsetOf implements connector.Table: it returns the Kafka offset of a row. ok is false if the row has none.
func (t *Table) OffsetOf(rows arrow.RecordBatch, row int64) (offset int64, ok bool) {
	at := rows.Schema().FieldIndices(schema.KafkaOffset)
	if len(at) != 1 {
		return 0, false
	}
	offsets, ok := rows.Column(at[0]).(*array.Int64)
	if !ok || row < 0 || row >= int64(offsets.Len()) || offsets.IsNull(int(row)) {
		return 0, false
	}
	return offsets.Value(int(row)), true
}

// encode makes data files of pieces and passes each to yield. An error or a panic of the encoder becomes a
// [connector.LocalError]; an error of yield, or any error after ctx has ended, is returned unchanged.
func (t *Table) encode(
	ctx context.Context, columns *schema.Schema, partitions *partitioner, pieces []connector.Piece, options datafile.Options,
	progress func(int, int64), yield func(datafile.File) error,
) (err error) {
	const doing = "encode"
	defer func() {
		if v := recover(); v != nil {
			err = connector.Recovered(doing, v)
		}
	}()
	options.Progress = progress
	if partitions != nil {
		options.Partition = partitions
	}
	var refused error // the error that yield returned
	err = datafile.Encode(ctx, columns.FileArrow(), pieces, options, func(file datafile.File) error {
		refused = yield(file)
		return refused
	})
	if err == nil || refused != nil || ctx.Err() != nil {
		return err
	}
	return connector.Local(doing, err)
}

// discardTimeout bounds the deletion of files, so that a dead store does not block the writer.
const discardTimeout = 10 * time.Second

// Discard implements connector.Table. It deletes the files only if every version that was tried with them is known to
// be another writer's. Files that a version may name stay: the log names them, or a vacuum removes them. Discard
// tries once and returns soon, even when ctx has ended.
func (t *Table) Discard(ctx context.Context, s *connector.Staged) {
	f, ok := s.Files.(*staged)
	switch {
	case !ok || f.named || f.discarded:
		return
	case f.mayBeNamed:
		t.metrics.orphans.Add(float64(len(f.adds)))
		t.log.InfoContext(ctx, "keeping data files; a version may name them", "batch_id", f.batch, "files", len(f.adds))
		return
	}
	f.discarded = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	deletes, ctx := errgroup.WithContext(ctx)
	deletes.SetLimit(1)
	if f.partitioned {
		deletes.SetLimit(filesAtOnce)
	}
	var deleted atomic.Int64
	for _, add := range f.adds {
		deletes.Go(func() error {
			err := ctx.Err() // after an error the rest is left out
			if err == nil {
				err = t.raw.Delete(ctx, deltalog.Key(add.Path))
			}
			if err == nil {
				deleted.Add(1)
			}
			return err
		})
	}
	if err := deletes.Wait(); err != nil {
		left := int64(len(f.adds)) - deleted.Load()
		t.metrics.orphans.Add(float64(left))
		t.log.WarnContext(ctx, "failed to delete data files of a dropped commit; leaving them behind", "batch_id", f.batch, "files", left, "err", err)
	}
}

// appendable returns the files of a commit, nil if it has none. It returns an error if the files were committed or
// discarded before, or if a version that names them may exist.
func appendable(s *connector.Staged) (*staged, error) {
	if s == nil {
		return nil, nil
	}
	f, ok := s.Files.(*staged)
	switch {
	case !ok:
		return nil, fmt.Errorf("commit: files of another kind (%T)", s.Files)
	case f.named || f.discarded || f.mayBeNamed:
		return nil, errors.New("commit: the files were already committed or discarded")
	}
	return f, nil
}

// propose encodes a commit as the version after head. columns is the schema of the table as of that version.
func (t *Table) propose(c *connector.Commit, files *staged, columns *schema.Schema) (*proposal, error) {
	version, at := t.head.Version+1, time.Now()
	now := at.UnixMilli()
	ranges := c.Ranges
	if ranges == nil {
		ranges = []connector.Range{}
	}
	changes := t.head.schema.ChangesTo(columns)
	own, err := json.Marshal(ours{
		Batch: c.Batch, Ranges: ranges, Moved: c.Moved, Ignored: c.Ignored, Replayed: c.Replayed,
		Added: changes.Names(), Relaxed: changes.Relaxed,
	})
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	info := deltalog.CommitInfo{
		Timestamp: now, Operation: c.Operation,
		OperationParameters: map[string]string{
			"outputMode": "Append", "queryId": t.opt.Pipeline, "epochId": strconv.FormatInt(version, 10),
		},
		ReadVersion: &t.head.Version, IsolationLevel: "Serializable", IsBlindAppend: true,
		OperationMetrics: map[string]string{"numAddedFiles": "0", "numOutputRows": "0", "numOutputBytes": "0"},
		EngineInfo:       t.opt.Engine, TxnID: uuid.NewString(), Sluice: own,
	}
	heads := make([]deltalog.Action, 0, len(c.Txns)+1)
	if !changes.None() {
		heads = append(heads, withColumns(t.head.Metadata, columns))
	}
	for _, x := range t.withDueTxns(c.Txns, at) {
		heads = append(heads, deltalog.Txn{AppID: x.AppID, Version: x.Version, LastUpdated: &now})
	}
	actions := append([]deltalog.Action{}, heads...)
	if files != nil {
		for _, add := range files.adds {
			actions = append(actions, add)
		}
		info.OperationMetrics = map[string]string{
			"numAddedFiles": strconv.Itoa(len(files.adds)), "numOutputRows": strconv.FormatInt(files.rows, 10),
			"numOutputBytes": strconv.FormatInt(files.bytes, 10),
		}
	}
	body, err := deltalog.Encode(append(actions, info))
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	p := t.proposal(version, info.TxnID, body, t.head.ReadAt)
	p.batch, p.heads, p.changes = c.Batch, heads, changes
	return p, nil
}

// ours is the JSON object that this program adds to commitInfo under its name.
type ours struct {
	// Batch is the id of the batch in log lines and dead letters.
	Batch string `json:"batch,omitempty"`
	// Ranges are the offsets that the commit covers.
	Ranges []connector.Range `json:"ranges"`
	// Moved names who moved positions by the commit and why. It is omitted for the commits of members.
	Moved *connector.Moved `json:"moved,omitempty"`
	// Ignored are, by topic, the fields of the commit's records that the table has no column for.
	Ignored []connector.IgnoredFields `json:"ignored_fields,omitempty"`
	// Replayed are the dead letters whose rows the commit adds.
	Replayed []connector.Replayed `json:"replayed,omitempty"`
	// Added and Relaxed are the paths of the columns that the commit added or made nullable.
	Added   []string `json:"added_columns,omitempty"`
	Relaxed []string `json:"relaxed_columns,omitempty"`
}
