package deltalog

import (
	"fmt"
	"maps"
	"time"

	"sluice/sink/delta/objstore"
)

// State is a table as of one version without its data files: all that an append-only writer needs. It is immutable;
// callers must not change its Txns.
type State struct {
	Version  int64
	Protocol Protocol
	Metadata Metadata
	Txns     map[string]Txn // the txns by appId

	// Checkpoint is the newest known checkpoint; its Version is -1 if there is none.
	Checkpoint Checkpoint
	// JSONBytes is the size of the commits after the checkpoint.
	JSONBytes int64
	// ReadAt is the time at which Version was known to be the newest one.
	ReadAt time.Time
	// Object has size and time of the commit's object, as the store showed them after ReadAt. It is zero if no request
	// was made for them, and if only a checkpoint of Version is left in the log.
	Object objstore.Info

	ids int64 // total length of all appIds in bytes
}

// size estimates the memory of the positions and the metadata.
func (s *State) size() int64 {
	n := s.ids + 2*perField*int64(len(s.Txns)) + int64(len(s.Metadata.SchemaString)+len(s.Metadata.Description))
	for k, v := range s.Metadata.Configuration {
		n += int64(len(k)+len(v)) + perField
	}
	return n
}

func (s *State) tooLarge() error {
	return corrupt("the positions and metadata up to version %d take more than %d bytes", s.Version, int64(maxState))
}

// Checkpoint is one checkpoint of a log.
type Checkpoint struct {
	Version int64
	Parts   int   // number of parts; 1 for a classic checkpoint
	Size    int64 // size of all parts in bytes
}

// key returns the object key of a part, counted from 0.
func (c Checkpoint) key(part int) string {
	if c.Parts == 1 {
		return CheckpointKey(c.Version)
	}
	return partKey(c.Version, part+1, c.Parts)
}

// empty returns the state before version 0.
func empty() *State { return &State{Version: -1, Checkpoint: Checkpoint{Version: -1}} }

// Commit is one version with the actions of the requested kinds.
type Commit struct {
	Version int64
	Bytes   int64 // size of the commit's file in bytes
	Actions []Action
}

// Info returns the commit's commitInfo, the zero value if it has none.
func (c Commit) Info() CommitInfo {
	for _, a := range c.Actions {
		if info, ok := a.(CommitInfo); ok {
			return info
		}
	}
	return CommitInfo{}
}

// After returns the state after applying c to s. c must be the next version.
func (s *State) After(c Commit) (*State, error) {
	if c.Version != s.Version+1 {
		return nil, corrupt("version %d cannot follow version %d", c.Version, s.Version)
	}
	next := *s
	next.Version, next.JSONBytes, next.Object = c.Version, s.JSONBytes+c.Bytes, objstore.Info{}
	next.replay(c.Actions)
	if err := next.complete(); err != nil {
		return nil, err
	}
	return &next, nil
}

// replay applies actions. It copies the map of positions before the first change, because older states share it.
func (s *State) replay(actions []Action) {
	shared := true
	for _, a := range actions {
		if _, ok := a.(Txn); ok && shared {
			if s.Txns, shared = maps.Clone(s.Txns), false; s.Txns == nil {
				s.Txns = map[string]Txn{}
			}
		}
		s.set(a)
	}
}

// set applies one action. The caller must own the map of positions.
func (s *State) set(a Action) {
	switch a := a.(type) {
	case Protocol:
		s.Protocol = a
	case Metadata:
		s.Metadata = a
	case Txn:
		if _, known := s.Txns[a.AppID]; !known {
			s.ids += int64(len(a.AppID))
		}
		s.Txns[a.AppID] = a
	}
}

// complete returns [ErrCorrupt] if the state has no protocol or no metadata, or exceeds maxState.
func (s *State) complete() error {
	switch {
	case s.Protocol.MinWriterVersion == 0:
		return corrupt("no protocol up to version %d", s.Version)
	case s.Metadata.ID == "":
		return corrupt("no metaData up to version %d", s.Version)
	case s.size() > maxState:
		return s.tooLarge()
	}
	return nil
}

// CheckpointDue reports whether this version should be checkpointed. With the table's delta.checkpointInterval set,
// that interval decides. Else a checkpoint is due after 10 commits if their JSON is at least a quarter of the size of
// the last checkpoint, which keeps the work for checkpoints in proportion to that for commits, or after 100 commits.
func (s *State) CheckpointDue() bool {
	since := s.Version - s.Checkpoint.Version
	if text, ok := s.Metadata.Configuration[propCheckpointInterval]; ok {
		if n, ok := number(text); ok && n > 0 {
			return since >= n
		}
	}
	return since >= 100 || since >= 10 && s.JSONBytes >= s.Checkpoint.Size/4
}

// Know returns s with c as the newest checkpoint. c may be of any program. It returns s unchanged if c is no newer than
// the known checkpoint, or is newer than s itself. It estimates the JSON bytes after c, which only decide when the next
// checkpoint is due.
func (s *State) Know(c Checkpoint) *State {
	if c.Parts == 0 || c.Version <= s.Checkpoint.Version || c.Version > s.Version {
		return s
	}
	known := *s
	known.Checkpoint = c
	known.JSONBytes = int64(float64(s.JSONBytes) * float64(s.Version-c.Version) / float64(s.Version-s.Checkpoint.Version))
	return &known
}

// String identifies the state in logs.
func (s *State) String() string { return fmt.Sprintf("table %s version %d", s.Metadata.ID, s.Version) }
