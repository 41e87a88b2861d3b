package deltalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/sink/delta/objstore"
)

// WriteCheckpoint writes the checkpoint of s (V1, one file) and makes _last_checkpoint name it, unless that names a
// later one. The data files of the checkpoint before are streamed over, so that memory grows with the commits since, not
// with the table; the new file is spooled to tempDir ("" is the system's) when it is large.
//
// Of the tombstones those stay whose file a reader of an old version may still need, by the table's
// delta.deletedFileRetentionDuration. All txns stay. A checkpoint that exists already is another member's of the same
// version, hence says the same; it is kept.
func WriteCheckpoint(ctx context.Context, store objstore.Store, s *State, now time.Time, tempDir string) (Checkpoint, error) {
	c := Checkpoint{Version: s.Version, Parts: 1}
	body := newSpool(tempDir)
	defer body.discard()
	written, err := encodeCheckpoint(ctx, store, s, now, body)
	if err != nil {
		return c, fmt.Errorf("checkpoint of version %d: %w", s.Version, err)
	}
	content, err := body.reader()
	if err != nil {
		return c, fmt.Errorf("checkpoint of version %d: %w", s.Version, err)
	}
	err = store.Put(ctx, CheckpointKey(s.Version), content, objstore.IfAbsent)
	if errors.Is(err, objstore.ErrExists) {
		written = counts{} // not ours to describe
	} else if err != nil {
		return c, fmt.Errorf("checkpoint of version %d: %w", s.Version, err)
	}

	// From here on the file exists. A crash now leaves it to be found by a list; the hint follows only after it has been
	// read back, because what the hint names is what others read first.
	if err := s.verify(ctx, store, &c, &written); err != nil {
		return c, fmt.Errorf("checkpoint of version %d, read back: %w", s.Version, err)
	}
	if named, ok := Hint(ctx, store); ok && named.Version >= s.Version {
		return c, nil
	}
	hint, err := json.Marshal(pointer{
		Version: s.Version, Size: written.actions, SizeInBytes: c.Size, NumOfAddFiles: written.adds,
	})
	if err != nil {
		return c, fmt.Errorf("write _last_checkpoint: %w", err)
	}
	if err := store.Put(ctx, lastCheckpoint, bytes.NewReader(hint), objstore.Replace); err != nil {
		return c, fmt.Errorf("write _last_checkpoint: %w", err)
	}
	return c, nil
}

// counts are what _last_checkpoint says of a checkpoint.
type counts struct {
	actions int64
	adds    int64 // 0 = unknown
}

// verify reads back what the store holds now: footer, protocol, metaData and txns must be those of s. It fills in size and
// counts.
func (s *State) verify(ctx context.Context, store objstore.Store, c *Checkpoint, written *counts) error {
	f, err := openParquet(ctx, store, CheckpointKey(s.Version))
	if err != nil {
		return err
	}
	c.Size = f.size
	rows := f.Content().NumRows()
	if written.actions != 0 && written.actions != rows {
		return corrupt("%d rows instead of %d", rows, written.actions)
	}
	written.actions = rows
	read, err := readHeads(ctx, store, *c)
	if err != nil {
		return err
	}
	same := maps.EqualFunc(read.Txns, s.Txns, func(a, b Txn) bool { return a.Version == b.Version })
	if !same || read.Metadata.ID != s.Metadata.ID || read.Metadata.SchemaString != s.Metadata.SchemaString ||
		read.Protocol.MinWriterVersion != s.Protocol.MinWriterVersion {
		return corrupt("it says something else than the commits")
	}
	return nil
}

// encodeCheckpoint writes the actions of s to body.
func encodeCheckpoint(ctx context.Context, store objstore.Store, s *State, now time.Time, body *spool) (counts, error) {
	var n counts
	if s.Protocol.MinReaderVersion > 1 || s.Protocol.MinWriterVersion > 6 {
		return n, fmt.Errorf("protocol (%d, %d) may need more than a V1 checkpoint", s.Protocol.MinReaderVersion, s.Protocol.MinWriterVersion)
	}
	w, err := newCheckpointWriter(body)
	if err != nil {
		return n, err
	}
	write := func(a Action) error {
		n.actions++
		return w.write(a)
	}
	if err := errors.Join(write(s.Protocol), write(s.Metadata)); err != nil {
		return n, err
	}
	for _, app := range slices.Sorted(maps.Keys(s.Txns)) {
		if err := write(s.Txns[app]); err != nil {
			return n, err
		}
	}
	keepAfter := s.tombstonesUntil(now).UnixMilli()
	for e, err := range reconcile(ctx, store, s, KindAdd|KindRemove) {
		if err != nil {
			return n, err
		}
		switch a := e.action.(type) {
		case Add:
			if a.DeletionVector != nil {
				return n, errors.New("a file has a deletion vector")
			}
			n.adds++
		case Remove:
			if a.DeletionTimestamp <= keepAfter {
				continue
			}
		}
		if err := write(e.action); err != nil {
			return n, err
		}
	}
	return n, w.close()
}
