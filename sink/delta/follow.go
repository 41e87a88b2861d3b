package delta

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/reliability"
	"sluice/reliability/panics"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// Follower follows a table by its log, as any reader does. It reports what happened to rows and positions since the
// last call of [Follower.Follow], for callers that cache which records have rows. It is for one goroutine. Its guard
// retries failures of the store until ctx ends.
type Follower struct {
	store objstore.Store
	state *deltalog.State // the state of the table as of the last call; nil before the first call, and while there is no table
}

// NewFollower returns a follower of the table at the root of store. The table need not exist yet.
func NewFollower(store objstore.Store, guard *reliability.Guard) *Follower {
	return &Follower{store: retried{store: store, guard: guard}}
}

// Change describes what happened to a table since the last call.
type Change struct {
	// Anew is true if the difference to the last call is unknown: this is the first call, the log no longer reaches
	// back that far, or another table is in the place of the old one.
	Anew bool
	// Others is true if rows may have changed otherwise than by an append of a member: another program added rows, a
	// commit removed some, the protocol was set, or the table gained or lost a Kafka column.
	Others bool
	// Back has the appIds whose position was moved back, each with the lowest position that it was moved back to.
	Back map[string]int64
	// Replayed are the dead letters whose rows were added by replays. If a commit names too many of them (see
	// maxReplayed), or names them in a form that this program does not write, they are left out and Others is true.
	Replayed []connector.Replayed
}

// maxReplayed is the limit for [Change.Replayed] in one call of Follow: for its memory in bytes plus the number of its
// offsets. The offsets count because callers iterate over them.
const maxReplayed = 4 << 20

// maxFollowed is the largest number of commits that are read one by one. Beyond it the table is loaded anew.
const maxFollowed = 2000

// Follow brings the follower up to the newest version and returns the changes. A panic over the content of the table
// becomes an error; the next call then starts anew.
func (f *Follower) Follow(ctx context.Context) (change Change, err error) {
	err = f.caught(func() error { change, err = f.follow(ctx); return err })
	return change, err
}

// caught runs op and turns a panic into an error. After a panic the follower drops all its state.
func (f *Follower) caught(op func() error) error {
	err := panics.Catch(op)
	if errors.As(err, new(*panics.Error)) {
		f.state = nil
	}
	return err
}

func (f *Follower) follow(ctx context.Context) (Change, error) {
	if f.state == nil {
		return f.anew(ctx)
	}
	switch same, err := f.stands(ctx); {
	case err != nil:
		return Change{}, err
	case !same:
		return f.anew(ctx)
	}
	change, s, left := Change{Back: map[string]int64{}}, f.state, int64(maxReplayed)
	for range maxFollowed {
		at := time.Now()
		c, err := deltalog.ReadCommit(ctx, f.store, s.Version+1, deltalog.All)
		if errors.Is(err, objstore.ErrNotFound) {
			return f.end(ctx, s, at, change)
		}
		if err != nil {
			return change, err
		}
		next, err := s.After(c)
		switch {
		case err != nil:
			return change, err
		case next.Metadata.ID != s.Metadata.ID:
			return f.anew(ctx)
		}
		change.note(s, c, &left)
		s = next
	}
	return f.anew(ctx)
}

// stands reports whether the newest version that was read is still in the log. The result is false if the table was
// deleted, restored from an older copy or created anew at the same place. The versions of such a table must not be
// applied to the old state.
func (f *Follower) stands(ctx context.Context) (bool, error) {
	now, err := deltalog.End(ctx, f.store, nil, f.state, time.Now())
	switch {
	case errors.Is(err, deltalog.ErrCorrupt):
		return false, nil
	case err != nil:
		return false, err
	}
	before := f.state.Object
	f.state = now
	return before.Key == "" || now.Object.Size == before.Size && now.Object.Modified.Equal(before.Modified), nil
}

// end makes s the newest state. The version after s was not found at the given time. If the log no longer holds the
// version of s, a log cleanup may have removed the version after it, too, so the follower starts anew.
func (f *Follower) end(ctx context.Context, s *deltalog.State, at time.Time, change Change) (Change, error) {
	last, err := deltalog.End(ctx, f.store, f.state, s, at)
	switch {
	case errors.Is(err, deltalog.ErrCorrupt):
		return f.anew(ctx)
	case err != nil:
		return change, err
	}
	f.state = last
	return change, nil
}

func (f *Follower) anew(ctx context.Context) (Change, error) {
	s, err := deltalog.Load(ctx, f.store)
	if errors.Is(err, deltalog.ErrNoTable) {
		f.state = nil
		return Change{Anew: true}, nil
	}
	if err != nil {
		return Change{}, err
	}
	f.state = s
	return Change{Anew: true}, nil
}

// note adds the changes of one commit to c. s is the state before the commit. left is the part of maxReplayed that
// earlier commits have not used; note reduces it.
func (c *Change) note(s *deltalog.State, commit deltalog.Commit, left *int64) {
	var own ours
	info := commit.Info()
	member := len(info.Sluice) > 0 && json.Unmarshal(info.Sluice, &own) == nil && own.Ranges != nil && c.replay(own.Replayed, left)
	for _, a := range commit.Actions {
		switch a := a.(type) {
		case deltalog.Txn:
			if before, ok := s.Txns[a.AppID]; ok && a.Version < before.Version {
				lowest, ok := c.Back[a.AppID]
				if !ok || a.Version < lowest {
					c.Back[a.AppID] = a.Version
				}
			}
		case deltalog.Metadata:
			c.Others = c.Others || hasKafkaColumns(a) != hasKafkaColumns(s.Metadata) || hasTopicIDs(a) != hasTopicIDs(s.Metadata)
		case deltalog.Protocol:
			c.Others = true
		case deltalog.Add:
			c.Others = c.Others || a.DataChange && !member || a.DeletionVector != nil
		case deltalog.Remove:
			c.Others = c.Others || a.DataChange
		}
	}
}

// replay adds the dead letters that a commit replayed, and returns true. It adds none and returns false if they are too
// many, or if they are named in a form that this program does not write.
func (c *Change) replay(all []connector.Replayed, left *int64) bool {
	letters, cost := int64(0), int64(0)
	for _, r := range all {
		n := r.Offsets.Len()
		if _, ok := r.Source(); !ok || n == 0 || n > connector.MaxReplayed { // each count is compared, so that their sum cannot overflow
			return false
		}
		letters += n
		cost += n + r.Offsets.Bytes() + int64(len(r.Cluster)+len(r.Topic)) + 160
	}
	if letters > connector.MaxReplayed || cost > *left {
		return false
	}
	*left -= cost
	c.Replayed = append(c.Replayed, all...)
	return true
}

// hasKafkaColumns reports whether the schema of a table can be parsed and has the Kafka columns.
func hasKafkaColumns(m deltalog.Metadata) bool {
	columns, err := schema.FromDelta([]byte(m.SchemaString))
	return err == nil && columns.HasKafkaColumns() == nil
}

// State returns the table as of the last call of Follow, nil if the follower knows no table.
func (f *Follower) State() *deltalog.State { return f.state }

// errNoState means that a follower knows no table whose rows it could read.
var errNoState = errors.New("no table is known: Follow has found none, or has to start anew")

// Places calls [Places] with the state of the last call of [Follower.Follow]; without a state it returns an error.
// bytes bounds the memory for data files. If a checkpoint or commit of that state is gone, it returns an error, too,
// and the next call of Follow starts anew.
func (f *Follower) Places(ctx context.Context, bytes int64, where []scan.Where, each func(scan.Place) error) error {
	return f.read(ctx, func() error { return places(ctx, f.store, f.state, bytes, where, each) })
}

// read runs op, which reads the table as of f.state.
func (f *Follower) read(ctx context.Context, op func() error) error {
	if f.state == nil {
		return errNoState
	}
	// Without the hint, all commits since a much older checkpoint might be read.
	if found, ok := deltalog.Hint(ctx, f.store); ok {
		f.state = f.state.Know(found)
	}
	err := f.caught(op)
	if err != nil && logMoved(err) {
		f.state = nil // the next call starts anew
	}
	return err
}
