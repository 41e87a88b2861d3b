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

// WriteCheckpoint writes the checkpoint of s (V1, one file) and makes _last_checkpoint name it, unless that already
// names it or a later one. The data files of the previous checkpoint are streamed, so memory grows with the commits
// since then, not with the table. A large file is spooled to tempDir ("" is the system's).
//
// A tombstone is kept as long as a reader of an old version may need its file: for the table's
// delta.deletedFileRetentionDuration. All txns are kept. If another writer has stored a checkpoint of the version
// already, that one stays. The stored checkpoint is read back in either case, and must have the heads of s.
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
		written = counts{} // another writer wrote the checkpoint, so its counts are unknown
	} else if err != nil {
		return c, fmt.Errorf("checkpoint of version %d: %w", s.Version, err)
	}

	// From here on the file exists. After a crash here, a list of the log still finds it. The hint is written only
	// after the file was read back, because other readers start at the hint.
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

// counts are the numbers in _last_checkpoint.
type counts struct {
	actions int64
	adds    int64 // number of add actions; 0 means unknown
}

// verify reads the stored checkpoint back. It returns an error unless the footer is sound, the number of rows is that
// of written (if written has one), and the protocol, metaData and txns are those of s. It sets c.Size and
// written.actions.
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
		return corrupt("its content differs from the commits")
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
