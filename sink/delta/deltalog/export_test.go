package deltalog

import (
	"bytes"
	"context"

	"sluice/sink/delta/objstore"
)

// SpoolMemory is where a spool turns to a file.
const SpoolMemory = spoolMemory

// LastCheckpoint is the key of the hint.
const LastCheckpoint = lastCheckpoint

// PartKey names a part of a checkpoint in several files.
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

// Tombstones returns the removed files that the newest checkpoint and the commits after it name.
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

// Reader returns what was written.
func (s *spool) Reader() (interface {
	Read([]byte) (int, error)
}, error,
) {
	return s.reader()
}

// Discard deletes it.
func (s *spool) Discard() { s.discard() }
