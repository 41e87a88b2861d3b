package opslog

// SetSnapshots makes the log write and expect a snapshot after some entries, with at most part bytes of the state in
// one of them. Call it before any other method.
func (l *Log) SetSnapshots(every int64, part int) {
	l.snapshots = snapshots{every, every / 2, part}
	l.own.snapshots = l.snapshots
}

// StartedFrom returns the seq of the snapshot that the chain of State and Append began with, 0 if it read all entries.
func (l *Log) StartedFrom() int64 { return l.own.from.Seq }

// Canonical returns the state as a snapshot has it.
func (s *State) Canonical() ([]byte, error) { return s.canonical() }

// SnapshotPartBytes is the number of bytes of a state in one entry.
const SnapshotPartBytes = snapshotPart
