package deltalog

import (
	"context"
	"fmt"
	"iter"

	"sluice/sink/delta/objstore"
)

// File is a data file of a table.
type File struct {
	Add
	// Version is the commit that added it, -1 if only a checkpoint has it.
	Version int64
}

// Files yields the data files of the table as of s: first those of its checkpoint in the checkpoint's order, then
// those of the later commits in theirs. Memory grows with the commits since the checkpoint, not with the table.
func Files(ctx context.Context, store objstore.Store, s *State) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		for e, err := range reconcile(ctx, store, s, KindAdd) {
			if err != nil {
				yield(File{}, err)
				return
			}
			if !yield(File{e.action.(Add), e.version}, nil) {
				return
			}
		}
	}
}

// entry is an action about a file, with the version of its commit. The version is -1 if the action is from the
// checkpoint.
type entry struct {
	action  Action
	version int64
}

// reconcile yields the final action about each file: first the checkpoint's actions about files that no later commit
// names, then those of the later commits.
func reconcile(ctx context.Context, store objstore.Store, s *State, want Kinds) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		since, err := changesSince(ctx, store, s)
		if err != nil {
			yield(entry{}, err)
			return
		}
		if s.Checkpoint.Version >= 0 {
			for a, err := range readCheckpoint(ctx, store, s.Checkpoint, want) {
				if err != nil {
					yield(entry{}, fmt.Errorf("checkpoint of version %d: %w", s.Checkpoint.Version, err))
					return
				}
				if _, named := since.last[path(a)]; !named && !yield(entry{a, -1}, nil) {
					return
				}
			}
		}
		for i, e := range since.entries {
			if since.last[path(e.action)] == i && e.action.kind()&want != 0 && !yield(e, nil) {
				return
			}
		}
	}
}

// changes are the actions of commits about files, in order. The final action about a file is entries[last[key]], where
// key is the object key of the file.
type changes struct {
	entries []entry
	last    map[string]int
}

func changesSince(ctx context.Context, store objstore.Store, s *State) (changes, error) {
	c := changes{last: map[string]int{}}
	say := func(a Action, version int64) {
		c.last[path(a)] = len(c.entries)
		c.entries = append(c.entries, entry{a, version})
	}
	for commit, err := range commits(ctx, store, s.Checkpoint.Version+1, s.Version, KindAdd|KindRemove) {
		if err != nil {
			return c, err
		}
		// If one commit removes and adds the same file, the add counts, independent of the order of its lines.
		for _, a := range commit.Actions {
			if r, ok := a.(Remove); ok {
				say(r, commit.Version)
			}
		}
		for _, a := range commit.Actions {
			if add, ok := a.(Add); ok {
				say(add, commit.Version)
			}
		}
	}
	return c, nil
}

// path returns the object key that an action names, "" for actions other than [Add] and [Remove].
func path(a Action) string {
	switch a := a.(type) {
	case Add:
		return Key(a.Path)
	case Remove:
		return Key(a.Path)
	}
	return ""
}
