package objstore

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
)

// List implements [Store]. It reads one directory at a time and skips directories that sort completely before after.
func (s *Local) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		var err error
		s.unsynced.Range(func(dir, _ any) bool {
			err = s.settle(dir.(string))
			return err == nil
		})
		if err != nil {
			yield(Info{}, failed(OpList, prefix, err))
			return
		}
		w := walk{s: s, ctx: ctx, prefix: prefix, after: after, yield: yield}
		dir, _, below := cutLast(prefix)
		if below && !fs.ValidPath(strings.TrimSuffix(dir, "/")) {
			dir = "" // no key has such a prefix, so the walk finds nothing
		}
		w.directory(dir)
	}
}

// cutLast splits a prefix after its last slash. found is false if it has none; dir is then empty.
func cutLast(prefix string) (dir, rest string, found bool) {
	i := strings.LastIndexByte(prefix, '/') + 1
	return prefix[:i], prefix[i:], i > 0
}

type walk struct {
	s             *Local
	ctx           context.Context // in a field because a walk lives only as long as one List
	prefix, after string
	yield         func(Info, error) bool
}

// fail yields an error and returns false, so that the walk ends.
func (w *walk) fail(err error) bool {
	w.yield(Info{}, failed(OpList, w.prefix, localError(err)))
	return false
}

// directory yields the objects below dir, which is empty or ends with a slash. It reports whether to continue.
func (w *walk) directory(dir string) bool {
	if err := w.ctx.Err(); err != nil {
		return w.fail(err)
	}
	if strings.HasPrefix(dir, tmpDir+"/") {
		return true
	}
	entries, err := fs.ReadDir(w.s.root.FS(), path.Clean("./"+dir))
	if err != nil {
		if errors.Is(missingError(err), ErrNotFound) {
			return true // the directory was deleted during the walk, or never existed
		}
		return w.fail(err)
	}
	// key returns the name by which an entry is sorted. A directory counts with its slash: "a-b" sorts before "a/c",
	// although the entry "a" sorts before "a-b".
	key := func(e fs.DirEntry) string {
		if e.IsDir() {
			return dir + e.Name() + "/"
		}
		return dir + e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(key(a), key(b)) })
	for _, e := range entries {
		switch k := key(e); {
		case e.IsDir():
			inPrefix := strings.HasPrefix(k, w.prefix) || strings.HasPrefix(w.prefix, k)
			if inPrefix && (k > w.after || strings.HasPrefix(w.after, k)) && !w.directory(k) {
				return false
			}
		case strings.HasPrefix(k, w.prefix) && k > w.after && e.Type().IsRegular() && checkKey(k) == nil:
			if !w.object(k, e) {
				return false
			}
		}
	}
	return true
}

func (w *walk) object(key string, e fs.DirEntry) bool {
	if err := w.ctx.Err(); err != nil {
		return w.fail(err)
	}
	fi, err := e.Info()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true // the object was deleted during the walk
	case err != nil:
		return w.fail(err)
	}
	return w.yield(Info{Key: key, Size: fi.Size(), Modified: fi.ModTime()}, nil)
}
