package bounded

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// Source is a file with random access.
type Source interface {
	io.ReaderAt
	Size() int64
	// Err returns the first error of the store. It distinguishes a failing store from a damaged file.
	Err() error
}

// Parquet is a Parquet file that any program may have written. The memory of the Parquet reader is bounded. A panic
// of the reader becomes an error, and an error of the store that the reader hides is returned.
type Parquet struct {
	source  Source
	memory  *Allocator
	damaged func(cause error) error
	content *file.Reader
}

// NewParquet returns an unopened file. damaged wraps an error or a panic of the Parquet reader into the caller's
// error for a file that is damaged or too large.
func NewParquet(source Source, memory *Allocator, damaged func(cause error) error) *Parquet {
	return &Parquet{source: source, memory: memory, damaged: damaged}
}

// Do runs piece, which may call the Parquet reader. Every call of the reader must be inside of Do, because the reader
// may panic on bytes that are not Parquet. The error is that of the store if the store failed, else that of damaged.
func (p *Parquet) Do(piece func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r) // a TooLargeError of the allocator, or a panic of the Parquet reader over the bytes
		}
		if failed := p.source.Err(); failed != nil {
			err = failed
		} else if err != nil {
			err = p.damaged(err)
		}
	}()
	return piece()
}

// Open reads the footer. Pages may take the whole limit of the allocator. Each column is read through a buffer of the
// given size in bytes instead of a whole row group at once.
func (p *Parquet) Open(buffer int64) error {
	return p.Do(func() (err error) {
		if err := p.memory.checkFooter(p.source); err != nil {
			return err
		}
		props := parquet.NewReaderProperties(p.memory)
		props.MaxCompressedPageSize, props.MaxUncompressedPageSize = p.memory.Limit(), p.memory.Limit()
		props.BufferedStreamEnabled, props.BufferSize = true, buffer
		p.content, err = file.NewParquetReader(io.NewSectionReader(p.source, 0, p.source.Size()), file.WithReadProps(props))
		return err
	})
}

// Content returns the reader of an open file. Use it only inside of [Parquet.Do].
func (p *Parquet) Content() *file.Reader { return p.content }

// Rows reads some columns of all row groups, batch rows at a time. The caller must release the result.
func (p *Parquet) Rows(ctx context.Context, columns []int, batch int64) (*Rows, error) {
	r := &Rows{file: p}
	err := p.Do(func() error {
		reader, err := pqarrow.NewFileReader(p.content, pqarrow.ArrowReadProperties{BatchSize: batch}, p.memory)
		if err != nil {
			return err
		}
		groups := make([]int, p.content.NumRowGroups())
		for i := range groups {
			groups[i] = i
		}
		r.reader, err = reader.GetRecordReader(ctx, columns, groups)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Rows iterates over the rows of some columns, in the order of the file.
type Rows struct {
	file   *Parquet
	reader pqarrow.RecordReader
}

// Next returns the next rows, which are valid until the next call. The error is io.EOF after the last ones.
func (r *Rows) Next() (batch arrow.RecordBatch, err error) {
	err = r.file.Do(func() error {
		if r.reader.Next() {
			batch = r.reader.RecordBatch()
			return nil
		}
		if err := r.reader.Err(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	})
	if err == nil && batch == nil {
		err = io.EOF
	}
	return batch, err
}

// Release frees the memory of the rows.
func (r *Rows) Release() { r.reader.Release() }
