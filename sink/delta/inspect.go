package delta

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	pq "github.com/apache/arrow-go/v18/parquet/schema"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// The functions of this file read any table and write none. They do each operation of the store once, without
// retries, because an operator can run the tool again.

// Info describes a table as of its newest version.
type Info struct {
	ID               string
	Name             string
	Created          time.Time // zero if the metadata do not have the time
	Version          int64
	Checkpoint       int64 // version of the newest checkpoint, -1 if there is none
	Protocol         deltalog.Protocol
	Schema           *schema.Schema // nil if the schema cannot be parsed; Refusal then says why
	PartitionColumns []string
	Properties       map[string]string

	Files int64
	Bytes int64
	// Rows is the number of rows in the files whose statistics have that number. FilesWithoutRows is the number of all
	// other files.
	Rows             int64
	FilesWithoutRows int64

	Txns []deltalog.Txn // sorted by appId
	// Positions maps appIds to the versions of Txns, as in a [connector.Snapshot]. It lacks the leader epoch of a
	// partition if that epoch belongs to an earlier position.
	Positions map[string]int64
	// Refusal is the reason why this version would not write the table, nil if it would.
	Refusal error
}

// Inspect reads the newest version of a table. The error is deltalog.ErrNoTable if there is none.
func Inspect(ctx context.Context, store objstore.Store) (Info, error) {
	s, err := deltalog.Load(ctx, store)
	if err != nil {
		return Info{}, err
	}
	i := Info{
		ID: s.Metadata.ID, Name: s.Metadata.Name, Version: s.Version, Checkpoint: s.Checkpoint.Version, Protocol: s.Protocol,
		PartitionColumns: s.Metadata.PartitionColumns, Properties: s.Metadata.Configuration,
		Txns:      slices.SortedFunc(maps.Values(s.Txns), func(a, b deltalog.Txn) int { return cmp.Compare(a.AppID, b.AppID) }),
		Positions: positions(s.Txns),
	}
	if s.Metadata.CreatedTime != nil {
		i.Created = instant(*s.Metadata.CreatedTime)
	}
	if i.Schema, i.Refusal = supported(s); i.Schema == nil {
		if columns, err := schema.FromDelta([]byte(s.Metadata.SchemaString)); err == nil {
			i.Schema = columns.WithPartitions(s.Metadata.PartitionColumns)
		}
	}
	for f, err := range deltalog.Files(ctx, store, s) {
		if err != nil {
			return i, err
		}
		i.Files, i.Bytes = i.Files+1, sum(i.Bytes, f.Size)
		if n, ok := numRecords(f.Add); ok {
			i.Rows = sum(i.Rows, n)
		} else {
			i.FilesWithoutRows++
		}
	}
	return i, nil
}

// recentCommits is the number of commits that [IgnoredFields] reads.
const recentCommits = 20

// IgnoredFields returns, by topic, the names of record fields that the table has no column for. It reads them from
// commitInfo of [recentCommits] versions: the given one and those before it. It stops at a commit that is missing or
// cannot be parsed. since is the oldest version that it has read.
func IgnoredFields(ctx context.Context, store objstore.Store, version int64) (all []connector.IgnoredFields, since int64, err error) {
	names, more := map[string][]string{}, map[string]bool{}
	since = version
	for at := version; at >= max(0, version-recentCommits+1); at-- {
		c, err := deltalog.ReadCommit(ctx, store, at, deltalog.KindCommitInfo)
		if errors.Is(err, objstore.ErrNotFound) || errors.Is(err, deltalog.ErrCorrupt) {
			break
		}
		if err != nil {
			return nil, since, err
		}
		since = at
		for _, f := range entry(c).Ignored {
			of := slices.Compact(slices.Sorted(slices.Values(slices.Concat(names[f.Topic], f.Names))))
			more[f.Topic] = more[f.Topic] || f.More || len(of) > connector.MaxIgnoredNames
			names[f.Topic] = of[:min(len(of), connector.MaxIgnoredNames)]
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(names)) {
		all = append(all, connector.IgnoredFields{Topic: topic, Names: names[topic], More: more[topic]})
	}
	return all, since, nil
}

// sum adds two numbers from another writer's log. It saturates: an overflow would make a large table look small.
func sum(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// instant converts another writer's milliseconds since 1970. It returns the zero time outside of the years 1 to 9999,
// which JSON cannot express.
func instant(milliseconds int64) time.Time {
	if at := time.UnixMilli(milliseconds).UTC(); 1 <= at.Year() && at.Year() <= 9999 {
		return at
	}
	return time.Time{}
}

// numRecords returns the number of rows of a file by its statistics; ok is false if the statistics do not have it or
// cannot be parsed.
func numRecords(a deltalog.Add) (int64, bool) {
	var stats struct {
		NumRecords *int64 `json:"numRecords"`
	}
	if a.Stats == "" || json.Unmarshal([]byte(a.Stats), &stats) != nil || stats.NumRecords == nil {
		return 0, false
	}
	return *stats.NumRecords, true
}

// Entry is one version in the history of a table.
type Entry struct {
	Version   int64
	Time      time.Time // time of the commit by the clock of its writer, zero if the commit has none
	Operation string
	Engine    string
	TxnID     string
	Txns      []deltalog.Txn
	// Ranges are the offsets that the commit covers, nil for commits of other programs.
	Ranges []connector.Range
	// Ignored are, by topic, the fields of the commit's records that the table has no column for.
	Ignored []connector.IgnoredFields
	// Moved names the operator who moved positions by the commit, nil for the commits of members.
	Moved *connector.Moved
	// Replayed are the dead letters whose rows the commit added.
	Replayed []connector.Replayed
	Files    int   // number of files that the commit added
	Removed  int   // number of files that the commit removed
	Rows     int64 // number of rows in the added files, as far as files have statistics
	Metadata bool  // true if the commit sets schema or properties
	// Added and Relaxed are the paths of the columns that the commit added or made nullable, nil for commits of other
	// programs.
	Added, Relaxed []string
}

// History yields the commits whose files still exist, oldest first. Log cleanup removes the oldest ones; a gap
// between two commits is an error.
func History(ctx context.Context, store objstore.Store) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for c, err := range deltalog.Commits(ctx, store, deltalog.All) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !yield(entry(c), nil) {
				return
			}
		}
	}
}

// Recent yields the commits from the given version down to 0, newest first. It ends at the first one whose file is
// missing.
func Recent(ctx context.Context, store objstore.Store, version int64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for ; version >= 0; version-- {
			c, err := deltalog.ReadCommit(ctx, store, version, deltalog.All)
			if errors.Is(err, objstore.ErrNotFound) {
				return
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !yield(entry(c), nil) {
				return
			}
		}
	}
}

func entry(c deltalog.Commit) Entry {
	info := c.Info()
	e := Entry{Version: c.Version, Operation: info.Operation, Engine: info.EngineInfo, TxnID: info.TxnID}
	if info.Timestamp != 0 {
		e.Time = instant(info.Timestamp)
	}
	var own ours
	if len(info.Sluice) > 0 && json.Unmarshal(info.Sluice, &own) == nil {
		e.Ranges, e.Ignored, e.Moved, e.Replayed = own.Ranges, own.Ignored, own.Moved, own.Replayed
		e.Added, e.Relaxed = own.Added, own.Relaxed
	}
	for _, a := range c.Actions {
		switch a := a.(type) {
		case deltalog.Txn:
			e.Txns = append(e.Txns, a)
		case deltalog.Add:
			e.Files++
			n, _ := numRecords(a)
			e.Rows = sum(e.Rows, n)
		case deltalog.Remove:
			e.Removed++
		case deltalog.Metadata:
			e.Metadata = true
		}
	}
	return e
}

// Row identifies the Kafka record of a row.
type Row struct {
	Topic     string
	TopicID   string // "" if the row has none
	Partition int32
	Offset    int64
	// FromKafka is false if one of the Kafka columns is null: another program wrote the row.
	FromKafka bool
}

// Offsets yields the Kafka columns of the rows of a data file, in the file's order. It reads no other columns.
func Offsets(ctx context.Context, store objstore.Store, f deltalog.File) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if f.DeletionVector != nil {
			yield(Row{}, fmt.Errorf("%s: some of its rows are deleted by a deletion vector, which is not read by this version", f.Path))
			return
		}
		stopped := false
		err := offsets(ctx, store, deltalog.Key(f.Path), func(r Row) bool {
			stopped = !yield(r, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(Row{}, fmt.Errorf("read %s: %w", f.Path, err))
		}
	}
}

func offsets(ctx context.Context, store objstore.Store, key string, yield func(Row) bool) error {
	return readColumns(ctx, store, key, offsetsBytes, 16<<10, kafkaColumns, func(batch arrow.RecordBatch) error {
		more, err := readRows(batch, yield)
		if err == nil && !more {
			return errStopped
		}
		return err
	})
}

// errStopped ends the reading of a file whose other rows the caller does not want.
var errStopped = errors.New("the caller wants no more rows")

// kafkaColumns returns the places of the Kafka columns in a file. Only the one of the topic id may be missing.
func kafkaColumns(of *pq.Schema) (columns []int, err error) {
	for _, name := range []string{schema.KafkaTopic, schema.KafkaPartition, schema.KafkaOffset, schema.KafkaTopicID} {
		switch at := of.ColumnIndexByName(name); {
		case at >= 0:
			columns = append(columns, at)
		case name != schema.KafkaTopicID:
			return nil, fmt.Errorf("there is no column %s", name)
		}
	}
	return columns, nil
}

// offsetsBytes bounds the memory for one data file while its Kafka columns are read.
const offsetsBytes = 64 << 20

// readRows yields the rows of a batch that has the Kafka columns, in any order of columns. more is false if yield
// returned false.
func readRows(batch arrow.RecordBatch, yield func(Row) bool) (more bool, err error) {
	more = true
	err = columnsOf(batch, func(r Row, _ int) { more = more && yield(r) })
	return more, err
}

// columnsOf calls each for the rows of a batch that has the Kafka columns, in any order of columns. Only the one of the
// topic id may be missing.
func columnsOf(batch arrow.RecordBatch, each func(r Row, i int)) error {
	column := func(name string) arrow.Array {
		if at := batch.Schema().FieldIndices(name); len(at) > 0 {
			return batch.Column(at[0])
		}
		return nil
	}
	topics, ids := column(schema.KafkaTopic), column(schema.KafkaTopicID)
	partitions, ok1 := column(schema.KafkaPartition).(*array.Int32)
	offsets, ok2 := column(schema.KafkaOffset).(*array.Int64)
	if !ok1 || !ok2 {
		return fmt.Errorf("the Kafka columns are %v", batch.Schema())
	}
	for i := range int(batch.NumRows()) {
		r := Row{}
		if topics.IsValid(i) && partitions.IsValid(i) && offsets.IsValid(i) {
			r = Row{Topic: topics.ValueStr(i), Partition: partitions.Value(i), Offset: offsets.Value(i), FromKafka: true}
			if ids != nil && ids.IsValid(i) {
				r.TopicID = ids.ValueStr(i)
			}
		}
		each(r, i)
	}
	return nil
}
