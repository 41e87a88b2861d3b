package deltalog

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/file"

	"sluice/sink/delta/bounded"
	"sluice/sink/delta/objstore"
)

// readCheckpoint yields the actions of the wanted kinds in a checkpoint, in its order. It reads only their columns, a
// batch of rows at a time. The error is [ErrCorrupt] for malformed content, otherwise that of the store.
func readCheckpoint(ctx context.Context, store objstore.Store, c Checkpoint, want Kinds) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		for part := range c.Parts {
			if !readPart(ctx, store, c.key(part), want, yield) {
				return
			}
		}
	}
}

// readPart yields the actions of one file. more is false if the caller stopped.
func readPart(ctx context.Context, store objstore.Store, key string, want Kinds, yield func(Action, error) bool) (more bool) {
	p, err := openParquet(ctx, store, key)
	if err != nil {
		yield(nil, err)
		return false
	}
	rows, err := p.rows(ctx, want)
	if err != nil {
		yield(nil, err)
		return false
	}
	if rows == nil {
		return true
	}
	defer rows.Release()
	for {
		some, err := p.next(rows)
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			yield(nil, err)
			return false
		}
		for i := range some.n {
			a, err := some.action(i)
			if err != nil {
				yield(nil, corrupt("%s: %v", key, err))
				return false
			}
			if a != nil && !yield(a, nil) {
				return false
			}
		}
	}
}

// parquetFile is one Parquet file of a checkpoint.
type parquetFile struct {
	*bounded.Parquet
	size   int64
	memory *bounded.Allocator
}

// openParquet opens one file of a checkpoint and reads its footer.
func openParquet(ctx context.Context, store objstore.Store, key string) (parquetFile, error) {
	source, err := OpenObject(ctx, store, key)
	if err != nil {
		return parquetFile{}, err
	}
	p := parquetFile{size: source.size, memory: bounded.New(checkpointBytes)}
	p.Parquet = bounded.NewParquet(source, p.memory, func(err error) error { return corrupt("%s: %v", key, err) })
	return p, p.Open(1 << 20)
}

// rows reads the columns of the wanted kinds, nil if the file has none of them.
func (p parquetFile) rows(ctx context.Context, want Kinds) (*bounded.Rows, error) {
	var leaves []int
	var batch int64
	err := p.Do(func() error {
		leaves, batch = wantedLeaves(p.Content(), want), batchRows(p.Content())
		return nil
	})
	if err != nil || len(leaves) == 0 {
		return nil, err
	}
	return p.Rows(ctx, leaves, batch)
}

// next returns the next rows, io.EOF at the end.
func (p parquetFile) next(rows *bounded.Rows) (some checkpointRows, err error) {
	batch, err := rows.Next()
	if err != nil {
		return some, err
	}
	err = p.Do(func() error { some = newCheckpointRows(batch); return nil })
	return some, err
}

// batchRows returns how many rows of a checkpoint are read at a time: as many as take about a sixteenth of
// checkpointBytes, at least 1 and at most 4096. More memory is needed while string builders grow: the old and the new
// buffer, of twice the size, exist at the same time.
func batchRows(f *file.Reader) int64 {
	var bytes int64
	rows := max(f.NumRows(), 1)
	for g := range f.NumRowGroups() {
		bytes += max(f.MetaData().RowGroup(g).TotalByteSize(), 0)
	}
	return min(max(checkpointBytes/16/max(bytes/rows, 1), 1), 4096)
}

// leavesOf are the columns that the actions of a kind need, by path. A trailing dot selects all columns below it.
var leavesOf = []struct {
	kind  Kinds
	paths []string
}{
	{KindProtocol, []string{"protocol."}},
	{KindMetadata, []string{"metaData."}},
	{KindTxn, []string{"txn."}},
	{KindAdd, []string{
		"add.path", "add.partitionValues.", "add.size", "add.modificationTime", "add.dataChange", "add.stats", "add.tags.",
		"add.deletionVector.storageType",
	}},
	{KindRemove, []string{
		"remove.path", "remove.deletionTimestamp", "remove.dataChange", "remove.extendedFileMetadata",
		"remove.partitionValues.", "remove.size",
	}},
}

func wantedLeaves(f *file.Reader, want Kinds) []int {
	var leaves []int
	columns := f.MetaData().Schema
	for i := range columns.NumColumns() {
		path := columns.Column(i).Path()
		for _, of := range leavesOf {
			for _, p := range of.paths {
				if want&of.kind != 0 && (path == p || strings.HasSuffix(p, ".") && strings.HasPrefix(path, p)) {
					leaves = append(leaves, i)
				}
			}
		}
	}
	return leaves
}

// checkpointRows is a batch of rows of a checkpoint. Columns that the file lacks are nil.
type checkpointRows struct {
	n int

	protocol, metadata, format, txn, add, dv, remove group
}

// group is a struct column with its children by name.
type group struct {
	rows     *array.Struct
	children map[string]arrow.Array
}

func newCheckpointRows(rec arrow.RecordBatch) checkpointRows {
	r := checkpointRows{n: int(rec.NumRows())}
	for i, f := range rec.Schema().Fields() {
		g := newGroup(rec.Column(i))
		switch f.Name {
		case nameProtocol:
			r.protocol = g
		case nameMetadata:
			r.metadata, r.format = g, newGroup(g.children["format"])
		case nameTxn:
			r.txn = g
		case nameAdd:
			r.add, r.dv = g, newGroup(g.children["deletionVector"])
		case nameRemove:
			r.remove = g
		}
	}
	return r
}

func newGroup(a arrow.Array) group {
	s, ok := a.(*array.Struct)
	if !ok {
		return group{}
	}
	g := group{s, map[string]arrow.Array{}}
	for i, f := range s.DataType().(*arrow.StructType).Fields() {
		g.children[f.Name] = s.Field(i)
	}
	return g
}

func (g group) has(i int) bool { return g.rows != nil && g.rows.IsValid(i) }

// action returns the action of row i, nil if the row has none of the kinds that were read.
func (r *checkpointRows) action(i int) (Action, error) {
	switch {
	case r.add.has(i):
		a := Add{
			Path: r.add.text("path", i), PartitionValues: r.add.textMap("partitionValues", i), Size: r.add.int("size", i),
			ModificationTime: r.add.int("modificationTime", i), DataChange: r.add.bool("dataChange", i),
			Stats: r.add.text("stats", i), Tags: r.add.textMap("tags", i),
		}
		if r.dv.has(i) && r.dv.text("storageType", i) != "" {
			a.DeletionVector = json.RawMessage(`{}`)
		}
		if a.Path == "" {
			return nil, errors.New("an add without a path")
		}
		return a, nil
	case r.remove.has(i):
		a := Remove{
			Path: r.remove.text("path", i), DeletionTimestamp: r.remove.int("deletionTimestamp", i),
			DataChange:           r.remove.bool("dataChange", i),
			ExtendedFileMetadata: r.remove.bool("extendedFileMetadata", i),
			PartitionValues:      r.remove.textMap("partitionValues", i), Size: r.remove.intOrNil("size", i),
		}
		if a.Path == "" {
			return nil, errors.New("a remove without a path")
		}
		return a, nil
	case r.txn.has(i):
		v := r.txn.intOrNil("version", i)
		if v == nil || !valid(r.txn.children["appId"], i) {
			return nil, errors.New("a txn without appId or version")
		}
		return Txn{AppID: r.txn.text("appId", i), Version: *v, LastUpdated: r.txn.intOrNil("lastUpdated", i)}, nil
	case r.metadata.has(i):
		m := Metadata{
			ID: r.metadata.text("id", i), Name: r.metadata.text("name", i), Description: r.metadata.text("description", i),
			SchemaString:     r.metadata.text("schemaString", i),
			PartitionColumns: r.metadata.textList("partitionColumns", i),
			Configuration:    plain(r.metadata.textMap("configuration", i)),
			CreatedTime:      r.metadata.intOrNil("createdTime", i),
		}
		if r.format.has(i) {
			m.Format = Format{Provider: r.format.text("provider", i), Options: plain(r.format.textMap("options", i))}
		}
		return m, m.check()
	case r.protocol.has(i):
		p := Protocol{
			MinReaderVersion: int32(r.protocol.int("minReaderVersion", i)), //nolint:gosec // an INT32 column
			MinWriterVersion: int32(r.protocol.int("minWriterVersion", i)), //nolint:gosec // an INT32 column
			ReaderFeatures:   r.protocol.textList("readerFeatures", i),
			WriterFeatures:   r.protocol.textList("writerFeatures", i),
		}
		return p, p.check()
	}
	return nil, nil
}

func valid(a arrow.Array, i int) bool { return a != nil && a.IsValid(i) }

func (g group) text(name string, i int) string { return textAt(g.children[name], i) }

// textAt returns a copy of a string in any of Arrow's representations; "" for null.
func textAt(a arrow.Array, i int) string {
	if !valid(a, i) {
		return ""
	}
	switch a := a.(type) {
	case *array.String:
		return strings.Clone(a.Value(i))
	case *array.LargeString:
		return strings.Clone(a.Value(i))
	case *array.StringView:
		return strings.Clone(a.Value(i))
	case *array.Dictionary:
		return textAt(a.Dictionary(), a.GetValueIndex(i))
	}
	return a.ValueStr(i)
}

func (g group) intOrNil(name string, i int) *int64 {
	a := g.children[name]
	if !valid(a, i) {
		return nil
	}
	var v int64
	switch a := a.(type) {
	case *array.Int64:
		v = a.Value(i)
	case *array.Int32:
		v = int64(a.Value(i))
	default:
		return nil
	}
	return &v
}

func (g group) int(name string, i int) int64 {
	if v := g.intOrNil(name, i); v != nil {
		return *v
	}
	return 0
}

func (g group) bool(name string, i int) bool {
	a, ok := g.children[name].(*array.Boolean)
	return ok && a.IsValid(i) && a.Value(i)
}

func (g group) textList(name string, i int) []string {
	a, ok := g.children[name].(array.ListLike)
	if !ok || a.IsNull(i) {
		return nil
	}
	from, to := a.ValueOffsets(i)
	list := make([]string, 0, to-from)
	for j := from; j < to; j++ {
		list = append(list, textAt(a.ListValues(), int(j)))
	}
	return list
}

func (g group) textMap(name string, i int) map[string]*string {
	a, ok := g.children[name].(*array.Map)
	if !ok || a.IsNull(i) {
		return nil
	}
	from, to := a.ValueOffsets(i)
	m := make(map[string]*string, to-from)
	for j := from; j < to; j++ {
		k := textAt(a.Keys(), int(j))
		m[k] = nil
		if valid(a.Items(), int(j)) {
			v := textAt(a.Items(), int(j))
			m[k] = &v
		}
	}
	return m
}

// plain returns m without the keys whose value is null.
func plain(m map[string]*string) map[string]string {
	if m == nil {
		return nil
	}
	p := make(map[string]string, len(m))
	for k, v := range m {
		if v != nil {
			p[k] = *v
		}
	}
	return p
}
