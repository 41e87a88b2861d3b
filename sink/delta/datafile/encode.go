package datafile

import (
	"context"
	"fmt"
	"math"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// encoder encodes chunks, one at a time. It is for one goroutine.
type encoder struct {
	cols  *columns
	cutAt int
	fit   func(arrow.RecordBatch) (arrow.RecordBatch, error) // nil if the rows fit as they are
	share *share                                             // the working memory, set while it encodes

	// The method shape fills these two fields for each chunk: the statistics of the columns,
	stats   []stat
	choices []choice // and the encoding of each leaf
}

// encoded is a row group: its footer entry with offsets into body, the column chunks in order, and the statistics of
// the columns.
type encoded struct {
	meta  *metadata.FileMetaData
	body  []byte
	rows  int64
	stats []stat
	err   error
}

func newEncoder(cols *columns, stringPrefix int) *encoder {
	return &encoder{cols: cols, cutAt: cutAt(stringPrefix), choices: make([]choice, len(cols.leaves))}
}

func (e *encoder) encode(ctx context.Context, c chunk) (encoded, error) {
	if err := ctx.Err(); err != nil {
		return encoded{}, err
	}
	if e.fit != nil {
		rows, err := e.fit(c.rows)
		if err != nil {
			return encoded{}, err
		}
		defer rows.Release()
		c.rows = rows
	}
	e.stats = make([]stat, e.cols.bounds)
	arrays, err := e.shapeAll(c)
	defer func() {
		for _, a := range arrays {
			a.Release()
		}
	}()
	if err != nil {
		return encoded{}, err
	}
	for i := range e.stats {
		e.stats[i].detach(e.cutAt)
	}
	meta, err := e.write(ctx, arrays)
	if err != nil {
		return encoded{}, err
	}
	g := encoded{meta: meta, rows: meta.NumRows, stats: e.stats}
	g.body, err = e.compact(meta)
	return g, err
}

// shapeAll returns the columns of a chunk in the order of the schema, in the form that the Parquet writer needs (see
// shape). A column that the chunk lacks is null. A column that the schema lacks is an error.
func (e *encoder) shapeAll(c chunk) ([]arrow.Array, error) {
	if c.rows == nil {
		return e.shapeGathered(c)
	}
	fields := c.rows.Schema().Fields()
	var arrays []arrow.Array
	found := e.countAbsent(fields)
	for i, col := range e.cols.root {
		var values arrow.Array
		if at, ok := position(fields, i, col.name); ok {
			found++
			var parts []arrow.Array
			for _, r := range c.ranges {
				parts = append(parts, array.NewSlice(c.rows.Column(at), r[0], r[1]))
			}
			var err error
			if values, err = concatenate(parts); err != nil {
				return arrays, fmt.Errorf("column %s: %w", col.path, err)
			}
		} else {
			n := int64(0)
			for _, r := range c.ranges {
				n += r[1] - r[0]
			}
			values = array.MakeArrayOfNull(memory.DefaultAllocator, col.typ, int(n))
		}
		shaped, err := e.shape(col, values, nil)
		values.Release()
		if err != nil {
			return arrays, err
		}
		arrays = append(arrays, shaped)
	}
	if found < len(fields) {
		return arrays, fmt.Errorf("the rows have a column that the table does not have: %s", unknown(fields, e.cols.root))
	}
	return arrays, nil
}

// countAbsent returns how many of the fields are columns that files do not have.
func (e *encoder) countAbsent(fields []arrow.Field) (n int) {
	for _, name := range e.cols.absent {
		if _, ok := position(fields, 0, name); ok {
			n++
		}
	}
	return n
}

// shapeGathered is shapeAll for a chunk of single rows.
func (e *encoder) shapeGathered(c chunk) ([]arrow.Array, error) {
	var arrays []arrow.Array
	runs := runsOf(c)
	for _, run := range runs {
		fields := run.rows.Schema().Fields()
		found := e.countAbsent(fields)
		for i, col := range e.cols.root {
			if _, ok := position(fields, i, col.name); ok {
				found++
			}
		}
		if found < len(fields) {
			return nil, fmt.Errorf("the rows have a column that the table does not have: %s", unknown(fields, e.cols.root))
		}
	}
	for i, col := range e.cols.root {
		values, err := gather(col, i, runs)
		if err != nil {
			return arrays, err
		}
		shaped, err := e.shape(col, values, nil)
		values.Release()
		if err != nil {
			return arrays, err
		}
		arrays = append(arrays, shaped)
	}
	return arrays, nil
}

// write makes a Parquet file of one row group in the share's buffer, and returns its footer.
func (e *encoder) write(ctx context.Context, arrays []arrow.Array) (*metadata.FileMetaData, error) {
	e.share.buf.Reset()
	props := writerProperties(e.cols.leaves, e.choices, parquet.WithAllocator(&e.share.memory))
	w, err := pqarrow.NewFileWriter(e.cols.sc, &e.share.buf, props, pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, err
	}
	if err := w.NewRowGroupChecked(); err != nil {
		return nil, err
	}
	for i, a := range arrays {
		if err := ctx.Err(); err != nil {
			return nil, err // the buffer then has an incomplete file and is not used
		}
		if err := w.WriteColumnData(a); err != nil {
			return nil, fmt.Errorf("column %s: %w", e.cols.root[i].path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return w.FileMetadata()
}

// compact copies the column chunks out of the share's buffer, makes the footer's offsets relative to the copy, and
// inserts our statistics. The Parquet writer leaves unused bytes after each chunk. A column chunk has no absolute
// offsets of its own, so the copy is exact.
//
// The structs of the footer belong to an internal package of arrow-go: their fields can be changed, but their types
// cannot be named.
func (e *encoder) compact(meta *metadata.FileMetaData) ([]byte, error) {
	if len(meta.RowGroups) != 1 || len(meta.RowGroups[0].Columns) != len(e.cols.leaves) {
		return nil, fmt.Errorf("the Parquet writer made %d row groups", len(meta.RowGroups))
	}
	group, data := meta.RowGroups[0], e.share.buf.Bytes()
	size := int64(0)
	for _, chunk := range group.Columns {
		size += chunk.MetaData.TotalCompressedSize
	}
	body := make([]byte, 0, size)
	for i, chunk := range group.Columns {
		md := chunk.MetaData
		if chunk.OffsetIndexOffset != nil || chunk.ColumnIndexOffset != nil || md.BloomFilterOffset != nil {
			return nil, fmt.Errorf("leaf %s: offsets of page index and bloom filter are not moved", e.cols.leaves[i].path)
		}
		from := md.DataPageOffset
		if d := md.DictionaryPageOffset; d != nil && *d > 0 && *d < from {
			from = *d
		}
		to := from + md.TotalCompressedSize
		if from < 0 || to < from || to > int64(len(data)) {
			return nil, fmt.Errorf("leaf %s: chunk [%d,%d) of %d bytes", e.cols.leaves[i].path, from, to, len(data))
		}
		move(&md.DataPageOffset, md.DictionaryPageOffset, int64(len(body))-from)
		chunk.FileOffset = int64(len(body))
		body = append(body, data[from:to]...)
		// A Go map has no order: without sorting, equal rows would give different footers.
		es := md.EncodingStats
		sort.Slice(es, func(a, b int) bool {
			if es[a].PageType != es[b].PageType {
				return es[a].PageType < es[b].PageType
			}
			return es[a].Encoding < es[b].Encoding
		})
		if c := e.cols.leaves[i].column; c != nil {
			st := e.stats[c.stat].footer(c)
			md.Statistics = st.ToThrift()
		}
	}
	return body, nil
}

// choice is the encoding of a leaf in one row group.
type choice struct {
	encoding   parquet.Encoding
	dictionary bool
	// costly makes the Parquet writer check the dictionary before the first page: it drops the dictionary unless the
	// dictionary and the indices together are smaller than the plain values.
	costly bool
	plain  bool // without compression
}

var choiceDictionary = choice{encoding: parquet.Encodings.Plain, dictionary: true}

// choiceOf returns the encoding that follows from the kind of a leaf alone. Floats and texts get another one if their
// values show that it is better. Delta-packed integers need no compression, and cost a tenth of what a dictionary
// costs.
func choiceOf(k kind) choice {
	switch k {
	case kindInt, kindDate, kindTimestamp:
		return choice{encoding: parquet.Encodings.DeltaBinaryPacked, plain: true}
	case kindString, kindBinary:
		return choice{encoding: parquet.Encodings.DeltaLengthByteArray}
	case kindDecimal:
		return choice{encoding: parquet.Encodings.Plain, dictionary: true, costly: true}
	case kindBool, kindFloat, kindStruct, kindList, kindMap:
	}
	return choice{encoding: parquet.Encodings.Plain}
}

// writerProperties returns the Parquet options for one row group. choices[i] is the encoding of leaves[i]; without
// choices all leaves keep the defaults. A leaf whose path is not unique keeps them, too, because the Parquet writer
// finds options by path. more are further options.
func writerProperties(leaves []leaf, choices []choice, more ...parquet.WriterProperty) *parquet.WriterProperties {
	o := []parquet.WriterProperty{
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(zstdLevel),
		// Pages wait in memory until the first one is complete. Small pages need less memory and time.
		parquet.WithDataPageSize(128 << 10),
		// The header of a V2 page takes its number of nulls from the writer's statistics and would be 0.
		parquet.WithDataPageVersion(parquet.DataPageV1),
		// The method compact inserts our statistics. The Parquet writer would compare every value again to compute its
		// own, and those are wrong for some columns below null lists.
		parquet.WithStats(false),
		parquet.WithDictionaryDefault(false),
		parquet.WithStoreDecimalAsInteger(true),
		parquet.WithMaxRowGroupLength(math.MaxInt64),
	}
	for i, c := range choices {
		path := leaves[i].path
		if !leaves[i].unique {
			continue
		}
		o = append(o, parquet.WithEncodingFor(path, c.encoding), parquet.WithDictionaryFor(path, c.dictionary),
			parquet.WithDictionaryCostFallbackFor(path, c.costly))
		if c.plain {
			o = append(o, parquet.WithCompressionFor(path, compress.Codecs.Uncompressed))
		}
	}
	return parquet.NewWriterProperties(append(o, more...)...)
}

// zstdLevel 1 is the fastest. Level 3 takes a sixth longer and saves nothing on typical rows.
const zstdLevel = 1
