//nolint:gosec // G115: counts are bounded where they are made: row groups, footer, entries of a dictionary.
package datafile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// magic begins and ends a Parquet file.
const magic = "PAR1"

// assembly is a file that is built from row groups.
type assembly struct {
	cols  *columns
	meta  *metadata.FileMetaData // the footer; nil until the first row group
	parts [][]byte
	off   int64 // position of the next row group
	rows  int64
	stats []stat
}

func newAssembly(cols *columns) *assembly {
	return &assembly{cols: cols, parts: [][]byte{[]byte(magic)}, off: int64(len(magic)), stats: make([]stat, cols.bounds)}
}

// size returns the current size of the file without its footer.
func (f *assembly) size() int64 { return f.off }

// full reports whether the footer cannot count one more row group.
func (f *assembly) full() bool { return f.meta != nil && len(f.meta.RowGroups) > math.MaxInt16 }

// add appends a row group and adjusts its offsets.
func (f *assembly) add(g encoded) error {
	if f.meta == nil {
		var err error
		if f.meta, err = emptyFooter(f.cols); err != nil {
			return err
		}
	}
	group, start, size, ordinal := g.meta.RowGroups[0], f.off, int64(len(g.body)), int16(len(f.meta.RowGroups))
	for _, chunk := range group.Columns {
		move(&chunk.MetaData.DataPageOffset, chunk.MetaData.DictionaryPageOffset, start)
		chunk.FileOffset += start
	}
	group.FileOffset, group.TotalCompressedSize, group.Ordinal = &start, &size, &ordinal
	f.meta.RowGroups = append(f.meta.RowGroups, group)
	f.meta.NumRows += g.rows
	f.parts = append(f.parts, g.body)
	f.off += size
	f.rows += g.rows
	f.merge(f.cols.root, g.stats)
	return nil
}

func (f *assembly) merge(list []*column, stats []stat) {
	for _, c := range list {
		if c.kind == kindStruct {
			f.merge(c.children, stats)
			continue
		}
		f.stats[c.stat].merge(&stats[c.stat], c.kind)
	}
}

// move adds the number by to both page offsets of a column chunk. dictionaryPage is nil if the chunk has no
// dictionary.
func move(dataPage, dictionaryPage *int64, by int64) {
	*dataPage += by
	if dictionaryPage != nil {
		*dictionaryPage += by
	}
}

// emptyFooter returns the footer of a file without rows: schema, version, writer.
func emptyFooter(cols *columns) (*metadata.FileMetaData, error) {
	w, err := pqarrow.NewFileWriter(cols.sc, io.Discard, writerProperties(nil, nil), pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return w.FileMetadata()
}

// finish writes the footer and returns the file.
func (f *assembly) finish(stringPrefix int) (File, error) {
	var footer bytes.Buffer
	n, err := f.meta.WriteTo(&footer, nil)
	if err != nil {
		return File{}, fmt.Errorf("footer: %w", err)
	}
	if n > math.MaxInt32 {
		return File{}, fmt.Errorf("footer of %d bytes", n)
	}
	footer.Write(binary.LittleEndian.AppendUint32(nil, uint32(n)))
	footer.WriteString(magic)
	b := newBody(append(f.parts, footer.Bytes()))
	return File{Body: b, Size: b.size, Rows: f.rows, Stats: deltaStats(f.cols, f.stats, f.rows, stringPrefix)}, nil
}

// body reads the parts of a file one after the other without joining them.
type body struct {
	parts [][]byte
	size  int64
	pos   int64
	part  int   // index of the part that contains the position pos
	start int64 // position of the start of that part
}

func newBody(parts [][]byte) *body {
	b := &body{parts: parts}
	for _, p := range parts {
		b.size += int64(len(p))
	}
	return b
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n := 0
	for n < len(p) && b.pos < b.size {
		for b.pos-b.start >= int64(len(b.parts[b.part])) {
			b.start += int64(len(b.parts[b.part]))
			b.part++
		}
		k := copy(p[n:], b.parts[b.part][b.pos-b.start:])
		n, b.pos = n+k, b.pos+int64(k)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

var errSeek = errors.New("seek before the start, or with an unknown whence")

// Seek implements [io.Seeker].
func (b *body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += b.pos
	case io.SeekEnd:
		offset += b.size
	default:
		return b.pos, errSeek
	}
	if offset < 0 {
		return b.pos, errSeek
	}
	b.pos, b.part, b.start = offset, 0, 0
	return offset, nil
}
