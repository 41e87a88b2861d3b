package deltalog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"

	"sluice/sink/delta/objstore"
)

// SpoolMemory is the size up to which a spool stays in memory.
const SpoolMemory = spoolMemory

// LastCheckpoint is the key of the hint.
const LastCheckpoint = lastCheckpoint

// PartKey returns the object key of a part of a checkpoint in several files.
func PartKey(version int64, part, parts int) string { return partKey(version, part, parts) }

// EncodeParts writes actions as Parquet files of a checkpoint, one for each part.
func EncodeParts(parts ...[]Action) ([][]byte, error) {
	var files [][]byte
	for _, actions := range parts {
		var buf bytes.Buffer
		w, err := newCheckpointWriter(&buf)
		if err != nil {
			return nil, err
		}
		for _, a := range actions {
			if err := w.write(a); err != nil {
				return nil, err
			}
		}
		if err := w.close(); err != nil {
			return nil, err
		}
		files = append(files, buf.Bytes())
	}
	return files, nil
}

// Tombstones returns the paths of the removed files whose tombstones are in the checkpoint of s or in a later commit.
func Tombstones(ctx context.Context, store objstore.Store, s *State) ([]string, error) {
	var paths []string
	for e, err := range reconcile(ctx, store, s, KindRemove) {
		if err != nil {
			return nil, err
		}
		paths = append(paths, e.action.(Remove).Path)
	}
	return paths, nil
}

// NewSpool returns a spool in dir.
func NewSpool(dir string) *spool { return newSpool(dir) }

// Reader returns a reader of the bytes that were written to the spool.
func (s *spool) Reader() (interface {
	Read([]byte) (int, error)
}, error,
) {
	return s.reader()
}

// Discard deletes the temporary file.
func (s *spool) Discard() { s.discard() }

// The bounds for the content of a log.
const (
	MaxHint     = maxHint
	MaxLine     = maxLine
	MaxHeads    = maxHeads
	MaxTogether = maxTogether
)

// ReadTogether reads versions in parallel and returns their errors and the largest number of bytes reserved at a time.
func ReadTogether(ctx context.Context, store objstore.Store, from, n int64, want Kinds) ([]error, int64) {
	b := &budget{}
	_, errs := readTogether(ctx, store, from, n, want, b)
	return errs, b.peak.Load()
}

// CheckpointMemory reads a checkpoint in one file, and returns numbers of allocated bytes: the peak, the number after
// the last row, and the number after the release of the rows.
func CheckpointMemory(ctx context.Context, store objstore.Store, version int64) (peak, atEnd, left int64, err error) {
	p, err := openParquet(ctx, store, CheckpointKey(version))
	if err != nil {
		return 0, 0, 0, err
	}
	rows, err := p.rows(ctx, All)
	for err == nil {
		_, err = p.next(rows)
	}
	if !errors.Is(err, io.EOF) {
		return 0, 0, 0, err
	}
	peak, atEnd = p.memory.Peak(), p.memory.Used()
	rows.Release()
	return peak, atEnd, p.memory.Used(), nil
}

// Parse yields the actions of a commit that is read alone, not in parallel with others.
func Parse(r io.Reader, want Kinds) iter.Seq2[Action, error] {
	return parse(r, want, &keeper{budget: &budget{}, alone: true})
}
