package deltalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"sluice/reliability/panics"
	"sluice/sink/delta/objstore"
	"sluice/sink/logappend"
)

// ErrNoTable means that the log of the table has no files.
var ErrNoTable = errors.New("no table")

// Load reads the newest state: the newest checkpoint that can be read, found by the hint or by a list, and the commits
// after it. A gap between the commits is [ErrCorrupt] with the missing version.
func Load(ctx context.Context, store objstore.Store) (*State, error) {
	const tries = 3 // the log is read anew if it seems damaged: a log cleanup may have deleted files during the read
	for try := 1; ; try++ {
		s, err := load(ctx, store)
		if err == nil || !errors.Is(err, ErrCorrupt) || try == tries {
			return s, err
		}
	}
}

func load(ctx context.Context, store objstore.Store) (*State, error) {
	hint := readHint(ctx, store)
	dir, err := list(ctx, store, max(hint, 0))
	if err != nil {
		return nil, err
	}
	s, err := newestCheckpoint(ctx, store, &dir)
	if err == nil && hint > 0 && (s == nil || dir.newest < 0) {
		// The hint names a checkpoint that is gone or incomplete, or that has no commit at or after its version.
		if dir, err = list(ctx, store, 0); err == nil {
			s, err = newestCheckpoint(ctx, store, &dir)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case s != nil && 0 <= dir.newest && dir.newest < s.Version:
		// Log cleanup removes the oldest files first, so it would have removed the existing commits before the commit
		// of this checkpoint. This checkpoint is therefore a stray file. Using it would hide the existing commits, and
		// the next version would follow a gap.
		return nil, corrupt("checkpoint %s lies behind the newest commit, which is version %d: delete the checkpoint",
			s.Checkpoint.key(0), dir.newest)
	case dir.empty && s == nil:
		return nil, ErrNoTable
	case dir.newest < 0 && s == nil:
		err := corrupt("there are files, but neither a commit nor a checkpoint that can be read")
		if dir.unsound != nil {
			err = fmt.Errorf("%w: %w", err, dir.unsound)
		}
		return nil, err
	case s == nil:
		s = empty()
	}
	if s, err = until(ctx, store, s, dir.newest); err != nil {
		if dir.unsound != nil {
			err = fmt.Errorf("%w; a checkpoint is not used: %w", err, dir.unsound)
		}
		return nil, err
	}
	return Refresh(ctx, store, s)
}

// LoadAt reads the state as of a version, from the newest checkpoint up to that version. The error is [ErrCorrupt] if
// the log no longer reaches back that far, or does not have the version yet.
func LoadAt(ctx context.Context, store objstore.Store, version int64) (*State, error) {
	dir, err := list(ctx, store, 0)
	if err != nil {
		return nil, err
	}
	if dir.empty {
		return nil, ErrNoTable
	}
	dir.checkpoints = slices.DeleteFunc(dir.checkpoints, func(c Checkpoint) bool { return c.Version > version })
	s, err := newestCheckpoint(ctx, store, &dir)
	if err != nil {
		return nil, err
	}
	if s == nil {
		s = empty()
	}
	if dir.newest < version && s.Version < version {
		return nil, corrupt("version %d does not exist", version)
	}
	return until(ctx, store, s, version)
}

// readHint returns the version in _last_checkpoint, -1 if the hint is missing or damaged. Without a hint the whole log
// is listed.
func readHint(ctx context.Context, store objstore.Store) int64 {
	c, ok := parseHint(ctx, store)
	if !ok {
		return -1
	}
	return c.Version
}

// Hint returns the checkpoint that _last_checkpoint names. ok is false if the hint is missing or damaged, or if the
// checkpoint does not exist. A newer checkpoint may exist.
func Hint(ctx context.Context, store objstore.Store) (c Checkpoint, ok bool) {
	if c, ok = parseHint(ctx, store); !ok {
		return c, false
	}
	if _, err := store.Head(ctx, c.key(0)); errors.Is(err, objstore.ErrNotFound) {
		return Checkpoint{}, false
	}
	return c, true
}

// parseHint returns the checkpoint that _last_checkpoint names; ok is false if the file is missing, too large or
// malformed.
func parseHint(ctx context.Context, store objstore.Store) (c Checkpoint, ok bool) {
	body, err := readHead(ctx, store, lastCheckpoint, maxHint+1)
	var hint pointer
	if err != nil || len(body) > maxHint || json.Unmarshal(body, &hint) != nil || hint.Version < 0 || hint.Version > maxVersion {
		return c, false
	}
	c = Checkpoint{Version: hint.Version, Parts: 1, Size: max(hint.SizeInBytes, 0)}
	if hint.Parts != nil {
		if *hint.Parts < 1 || *hint.Parts > maxParts {
			return Checkpoint{}, false
		}
		c.Parts = int(*hint.Parts)
	}
	return c, true
}

// maxParts is the largest number of parts that a hint may give a checkpoint.
const maxParts = 1 << 14

// pointer is the content of _last_checkpoint.
type pointer struct {
	Version       int64  `json:"version"`
	Size          int64  `json:"size"` // number of actions in the checkpoint
	Parts         *int64 `json:"parts,omitempty"`
	SizeInBytes   int64  `json:"sizeInBytes,omitempty"`
	NumOfAddFiles int64  `json:"numOfAddFiles,omitempty"`
}

// directory is the result of listing the log.
type directory struct {
	checkpoints []Checkpoint // complete checkpoints, newest first
	oldest      int64        // version of the oldest commit, -1 if there is none
	newest      int64        // version of the newest commit, -1 if there is none
	empty       bool         // true if there is no file at all, also of kinds that this package does not read
	unsound     error        // why the checkpoint that was tried last is not used
}

// list finds the commits and the complete checkpoints of version from and later.
func list(ctx context.Context, store objstore.Store, from int64) (directory, error) {
	dir := directory{oldest: -1, newest: -1, empty: true}
	type whole struct {
		version int64
		parts   int
	}
	found := map[whole]Checkpoint{}
	seen := map[whole]int{}
	for o, err := range store.List(ctx, Dir, before(from)) {
		if err != nil {
			return dir, fmt.Errorf("list the log: %w", err)
		}
		if rest := o.Key[len(Dir):]; rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			dir.empty = false
		}
		f, ok, err := parseName(o.Key)
		switch {
		case err != nil:
			return dir, err
		case !ok:
		case !f.checkpoint:
			dir.newest = max(dir.newest, f.version)
			if dir.oldest < 0 {
				dir.oldest = f.version
			}
		default:
			w := whole{f.version, f.parts}
			c := found[w]
			found[w] = Checkpoint{Version: f.version, Parts: f.parts, Size: c.Size + o.Size}
			seen[w]++
		}
	}
	for w, c := range found {
		if seen[w] == w.parts {
			dir.checkpoints = append(dir.checkpoints, c)
		}
	}
	slices.SortFunc(dir.checkpoints, func(a, b Checkpoint) int {
		if a.Version != b.Version {
			return cmp.Compare(b.Version, a.Version)
		}
		return cmp.Compare(a.Parts, b.Parts)
	})
	return dir, nil
}

// newestCheckpoint returns the state of the newest checkpoint in dir that can be read, nil if there is none. If a
// checkpoint is damaged or missing, it stores the reason in dir.unsound and tries the next older one.
func newestCheckpoint(ctx context.Context, store objstore.Store, dir *directory) (*State, error) {
	for _, c := range dir.checkpoints {
		s, err := readHeads(ctx, store, c)
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, ErrCorrupt), errors.Is(err, objstore.ErrNotFound):
			dir.unsound = err // an older checkpoint with more commits after it gives the same state
		default:
			return nil, fmt.Errorf("checkpoint of version %d: %w", c.Version, err)
		}
	}
	return nil, nil
}

// readHeads reads the state from a checkpoint without the columns of data files.
func readHeads(ctx context.Context, store objstore.Store, c Checkpoint) (*State, error) {
	s := &State{Version: c.Version, Checkpoint: c, Txns: map[string]Txn{}}
	for a, err := range readCheckpoint(ctx, store, c, Heads) {
		if err != nil {
			return nil, err
		}
		if s.set(a); s.size() > maxState {
			return nil, s.tooLarge()
		}
	}
	return s, s.complete()
}

// probedVersions is the number of new versions that [Refresh] requests by name. If all of them exist, it lists the log
// instead.
const probedVersions = 8

// Refresh returns the newest state: s with all later commits applied. It reads only those commits, and checks their end
// with [End]. The error is [ErrCorrupt] also if a log cleanup removed versions that it still had to read: the caller
// must then call Load.
func Refresh(ctx context.Context, store objstore.Store, s *State) (*State, error) {
	before := s
	for n := 0; ; n++ {
		if n == probedVersions {
			dir, err := list(ctx, store, s.Version+1)
			if err != nil {
				return nil, err
			}
			if s, err = until(ctx, store, s, dir.newest); err != nil {
				return nil, err
			}
			n = 0
		}
		at := time.Now()
		c, err := ReadCommit(ctx, store, s.Version+1, Heads)
		if errors.Is(err, objstore.ErrNotFound) {
			return End(ctx, store, before, s, at)
		}
		if err != nil {
			return nil, err
		}
		if s, err = s.After(c); err != nil {
			return nil, err
		}
	}
}

// End returns s as the newest state. The caller has requested the version after s, at the time at, and has not found
// it. A log cleanup may have removed that version, but a cleanup removes older versions first. So End checks that the
// version of s is still in the log. If it is gone, the error is [ErrCorrupt], and the caller must call Load. End skips
// the check if s equals began, the state before the caller read any commits, and s was the newest state less than a
// minute before at: no log drops versions that fast.
func End(ctx context.Context, store objstore.Store, began, s *State, at time.Time) (*State, error) {
	last := *s
	last.ReadAt = at
	if s == began && logappend.Recent(s.ReadAt, at) {
		return &last, nil
	}
	var err error
	if last.Object, err = stands(ctx, store, s); err != nil {
		return nil, err
	}
	return &last, nil
}

// stands checks that the version of s is still in the log. It returns the commit's object, zero if only a checkpoint
// of the version is left. The error is [ErrCorrupt] if the version is gone.
func stands(ctx context.Context, store objstore.Store, s *State) (objstore.Info, error) {
	object, err := store.Head(ctx, CommitKey(s.Version))
	if errors.Is(err, objstore.ErrNotFound) && s.Version == s.Checkpoint.Version {
		_, err = store.Head(ctx, s.Checkpoint.key(0))
	}
	if errors.Is(err, objstore.ErrNotFound) {
		return objstore.Info{}, corrupt("version %d is gone, the log was cleaned up while it was read", s.Version)
	}
	if err != nil {
		return objstore.Info{}, fmt.Errorf("check version %d: %w", s.Version, err)
	}
	return object, nil
}

// until replays the commits after s up to version last, which a list has shown.
func until(ctx context.Context, store objstore.Store, s *State, last int64) (*State, error) {
	for c, err := range commits(ctx, store, s.Version+1, last, Heads) {
		if err != nil {
			return nil, err
		}
		if s, err = s.After(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// ReadCommit reads one version. The error is objstore.ErrNotFound if it does not exist. A panic over its content
// becomes [ErrCorrupt]: commits are read on separate goroutines, where a panic would end the process.
func ReadCommit(ctx context.Context, store objstore.Store, version int64, want Kinds) (Commit, error) {
	return readWith(ctx, store, version, want, &keeper{budget: &budget{}, alone: true})
}

func readWith(ctx context.Context, store objstore.Store, version int64, want Kinds, keep *keeper) (Commit, error) {
	c := Commit{Version: version}
	err := panics.Catch(func() error { return readCommit(ctx, store, want, keep, &c) })
	if caught := (*panics.Error)(nil); errors.As(err, &caught) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, caught)
	}
	if err != nil {
		keep.giveUp()
		return Commit{Version: version}, fmt.Errorf("read version %d: %w", version, err)
	}
	return c, nil
}

func readCommit(ctx context.Context, store objstore.Store, want Kinds, keep *keeper, c *Commit) error {
	body, err := store.Get(ctx, CommitKey(c.Version), 0, -1)
	if err != nil {
		return err
	}
	defer body.Close()
	count := &counter{r: body}
	for a, err := range parse(count, want, keep) {
		if err != nil {
			return err
		}
		c.Actions = append(c.Actions, a)
	}
	c.Bytes = count.n
	return nil
}

// counter is a reader that counts the bytes that it returns.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// readAhead is the number of commits that are read in parallel and held in memory.
const readAhead = 8

// commits yields the versions from..to in order. The caller knows that version to exists, so an earlier version that is
// missing is a gap and [ErrCorrupt].
func commits(ctx context.Context, store objstore.Store, from, to int64, want Kinds) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		for ; from <= to; from += readAhead {
			some, errs := readTogether(ctx, store, from, min(readAhead-1, to-from)+1, want, &budget{})
			for i, c := range some {
				err := errs[i]
				// The commit is too large by itself, or only together with those that are read in parallel.
				if errors.Is(err, errTogether) {
					c, err = ReadCommit(ctx, store, c.Version, want)
				}
				some[i] = Commit{} // frees the memory of the commit, which the caller has now
				if errors.Is(err, objstore.ErrNotFound) {
					err = corrupt("version %d is missing, version %d exists", c.Version, to)
				}
				if !yield(c, err) || err != nil {
					return
				}
			}
		}
	}
}

// readTogether reads n versions in parallel and returns a commit or an error for each. The memory of their parsed lines
// counts against one budget. A version that exceeds it has the error errTogether.
func readTogether(ctx context.Context, store objstore.Store, from, n int64, want Kinds, together *budget) ([]Commit, []error) {
	some, errs := make([]Commit, n), make([]error, n)
	var group sync.WaitGroup
	for i := range some {
		group.Go(func() {
			some[i], errs[i] = readWith(ctx, store, from+int64(i), want, &keeper{budget: together})
		})
	}
	group.Wait()
	return some, errs
}

// Commits yields the commits whose files still exist, oldest first. A gap between them is [ErrCorrupt].
func Commits(ctx context.Context, store objstore.Store, want Kinds) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		dir, err := list(ctx, store, 0)
		if err != nil {
			yield(Commit{}, err)
			return
		}
		commits(ctx, store, max(dir.oldest, 0), dir.newest, want)(yield)
	}
}

// readHead reads the first n bytes of an object.
func readHead(ctx context.Context, store objstore.Store, key string, n int64) ([]byte, error) {
	r, err := store.Get(ctx, key, 0, n)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, n))
}
