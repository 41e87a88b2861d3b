package deltalog

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// A row group of a checkpoint ends at these sizes; one is in memory at a time.
const (
	groupRows  = 20_000
	groupBytes = 16 << 20
)

var (
	textType    = arrow.BinaryTypes.String
	textMapType = arrow.MapOf(textType, textType)
	textsType   = arrow.ListOfField(arrow.Field{Name: "element", Type: textType, Nullable: true})
)

func optional(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

// The columns of a checkpoint, one per kind of action. Each row fills one of them.
var (
	txnType = arrow.StructOf(
		optional("appId", textType),
		optional("version", arrow.PrimitiveTypes.Int64),
		optional("lastUpdated", arrow.PrimitiveTypes.Int64),
	)
	addType = arrow.StructOf(
		optional("path", textType),
		optional("partitionValues", textMapType),
		optional("size", arrow.PrimitiveTypes.Int64),
		optional("modificationTime", arrow.PrimitiveTypes.Int64),
		optional("dataChange", arrow.FixedWidthTypes.Boolean),
		optional("stats", textType),
		optional("tags", textMapType),
	)
	removeType = arrow.StructOf(
		optional("path", textType),
		optional("deletionTimestamp", arrow.PrimitiveTypes.Int64),
		optional("dataChange", arrow.FixedWidthTypes.Boolean),
		optional("extendedFileMetadata", arrow.FixedWidthTypes.Boolean),
		optional("partitionValues", textMapType),
		optional("size", arrow.PrimitiveTypes.Int64),
	)
	metadataType = arrow.StructOf(
		optional("id", textType),
		optional("name", textType),
		optional("description", textType),
		optional("format", arrow.StructOf(optional("provider", textType), optional("options", textMapType))),
		optional("schemaString", textType),
		optional("partitionColumns", textsType),
		optional("configuration", textMapType),
		optional("createdTime", arrow.PrimitiveTypes.Int64),
	)
	protocolType = arrow.StructOf(
		optional("minReaderVersion", arrow.PrimitiveTypes.Int32),
		optional("minWriterVersion", arrow.PrimitiveTypes.Int32),
		optional("readerFeatures", textsType),
		optional("writerFeatures", textsType),
	)
	checkpointSchema = arrow.NewSchema([]arrow.Field{
		optional(nameTxn, txnType), optional(nameAdd, addType), optional(nameRemove, removeType),
		optional(nameMetadata, metadataType), optional(nameProtocol, protocolType),
	}, nil)
)

const (
	columnTxn = iota
	columnAdd
	columnRemove
	columnMetadata
	columnProtocol
)

// checkpointWriter writes actions as rows of a Parquet file.
type checkpointWriter struct {
	file  *pqarrow.FileWriter
	rows  *array.RecordBuilder
	n     int
	bytes int
}

func newCheckpointWriter(out io.Writer) (*checkpointWriter, error) {
	props := []parquet.WriterProperty{
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1),
		parquet.WithDataPageVersion(parquet.DataPageV1), parquet.WithVersion(parquet.V2_LATEST),
		// Readers do not use statistics of a checkpoint, and null lists and maps would add placeholder values to them.
		parquet.WithStats(false),
		parquet.WithDictionaryFor("add.path", false), parquet.WithDictionaryFor("add.stats", false),
		parquet.WithMaxRowGroupLength(groupRows + 1),
	}
	file, err := pqarrow.NewFileWriter(checkpointSchema, out, parquet.NewWriterProperties(props...), pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, fmt.Errorf("checkpoint writer: %w", err)
	}
	return &checkpointWriter{file: file, rows: array.NewRecordBuilder(memory.DefaultAllocator, checkpointSchema)}, nil
}

func (w *checkpointWriter) write(a Action) error {
	column := 0
	switch a := a.(type) {
	case Txn:
		column = columnTxn
		row := w.begin(column)
		row.text(a.AppID)
		row.int(a.Version)
		row.intOrNull(a.LastUpdated)
	case Add:
		column = columnAdd
		w.bytes += len(a.Path) + len(a.Stats)
		row := w.begin(column)
		row.text(a.Path)
		row.textMap(a.PartitionValues)
		row.int(a.Size)
		row.int(a.ModificationTime)
		row.bool(false) // dataChange is false: a checkpoint repeats actions and changes no data
		row.textOrNull(a.Stats)
		row.textMapOrNull(a.Tags)
	case Remove:
		column = columnRemove
		w.bytes += len(a.Path)
		row := w.begin(column)
		row.text(a.Path)
		row.int(a.DeletionTimestamp)
		row.bool(false)
		row.bool(a.ExtendedFileMetadata)
		row.textMapOrNull(a.PartitionValues)
		row.intOrNull(a.Size)
	case Metadata:
		column = columnMetadata
		row := w.begin(column)
		row.text(a.ID)
		row.textOrNull(a.Name)
		row.textOrNull(a.Description)
		format := row.nested()
		format.text(a.Format.Provider)
		format.textMap(nullable(a.Format.Options))
		row.text(a.SchemaString)
		row.texts(a.PartitionColumns)
		row.textMap(nullable(a.Configuration))
		row.intOrNull(a.CreatedTime)
	case Protocol:
		column = columnProtocol
		row := w.begin(column)
		row.int32(a.MinReaderVersion)
		row.int32(a.MinWriterVersion)
		row.textsOrNull(a.ReaderFeatures)
		row.textsOrNull(a.WriterFeatures)
	case CommitInfo:
		return nil // other kinds of actions are not part of a checkpoint
	}
	for i := range checkpointSchema.NumFields() {
		if i != column {
			w.rows.Field(i).AppendNull()
		}
	}
	w.n++
	if w.n < groupRows && w.bytes < groupBytes {
		return nil
	}
	return w.flush()
}

// flush ends a row group.
func (w *checkpointWriter) flush() error {
	if w.n == 0 {
		return nil
	}
	rec := w.rows.NewRecordBatch()
	defer rec.Release()
	w.n, w.bytes = 0, 0
	if err := w.file.Write(rec); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	return nil
}

func (w *checkpointWriter) close() error {
	defer w.rows.Release()
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("write the footer: %w", err)
	}
	return nil
}

// fields appends the fields of one struct, in order.
type fields struct {
	of   *array.StructBuilder
	next int
}

func (w *checkpointWriter) begin(column int) *fields {
	return open(w.rows.Field(column))
}

func open(b array.Builder) *fields {
	group := b.(*array.StructBuilder)
	group.Append(true)
	return &fields{of: group}
}

func (f *fields) builder() array.Builder {
	f.next++
	return f.of.FieldBuilder(f.next - 1)
}

func (f *fields) nested() *fields { return open(f.builder()) }
func (f *fields) text(s string)   { f.builder().(*array.StringBuilder).Append(s) }
func (f *fields) int(n int64)     { f.builder().(*array.Int64Builder).Append(n) }
func (f *fields) int32(n int32)   { f.builder().(*array.Int32Builder).Append(n) }
func (f *fields) bool(v bool)     { f.builder().(*array.BooleanBuilder).Append(v) }
func (f *fields) null()           { f.builder().AppendNull() }

func (f *fields) textOrNull(s string) {
	if s == "" {
		f.null()
		return
	}
	f.text(s)
}

func (f *fields) intOrNull(n *int64) {
	if n == nil {
		f.null()
		return
	}
	f.int(*n)
}

func (f *fields) texts(list []string) {
	b := f.builder().(*array.ListBuilder)
	b.Append(true)
	for _, s := range list {
		b.ValueBuilder().(*array.StringBuilder).Append(s)
	}
}

func (f *fields) textsOrNull(list []string) {
	if list == nil {
		f.null()
		return
	}
	f.texts(list)
}

func (f *fields) textMap(m map[string]*string) {
	b := f.builder().(*array.MapBuilder)
	b.Append(true)
	keys, values := b.KeyBuilder().(*array.StringBuilder), b.ItemBuilder().(*array.StringBuilder)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		keys.Append(k)
		if v := m[k]; v != nil {
			values.Append(*v)
		} else {
			values.AppendNull()
		}
	}
}

func (f *fields) textMapOrNull(m map[string]*string) {
	if m == nil {
		f.null()
		return
	}
	f.textMap(m)
}

func nullable(m map[string]string) map[string]*string {
	n := make(map[string]*string, len(m))
	for k, v := range m {
		n[k] = &v
	}
	return n
}
