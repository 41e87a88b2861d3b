package objstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/classify"
)

// tmpDir is the directory of temporary files. All of them are in one directory, so that the method sweep is fast even
// with many objects. Readers of tables ignore it. It must be on the same file system as the objects.
const tmpDir = ".tmp"

// Local is a store in a local directory. Several processes of one host may share it. An object appears at once,
// complete and durable, or not at all: a put writes a temporary file, syncs it, gives it its final name with link(2)
// (or rename(2) for Replace), syncs the directory and removes the temporary name. Unlike rename, link never replaces
// a file. Unlike O_EXCL on the final name, readers never see a part of the object, and a crash leaves none behind.
//
// File systems without hard links (FAT, exFAT, most SMB mounts, object store mounts) are refused with [ErrUnsafe]. On
// NFS the link is atomic on the server, but lists on other hosts may lag.
type Local struct {
	root *os.Root // keeps keys within the directory, even if symbolic links lead out of it
	own  string   // prefix of the temporary names of this process
	lock io.Closer
	seq  atomic.Uint64

	made     sync.Map // directories known to be durable
	unsynced sync.Map // directories with an object that may not be durable yet

	localSystem
}

// localSystem has the system calls that tests replace.
type localSystem struct {
	link func(from, to string) error // links a file to a second name; both are relative to the root
	sync func(*os.File) error
	step func(string) // called at each step of a put; a test lets the process crash there
}

// NewLocal opens dir as a store. It creates a missing directory, removes the leftovers of crashed processes, and
// tests that the file system guarantees IfAbsent ([ErrUnsafe] if not). The caller must call Close at the end.
func NewLocal(ctx context.Context, dir string) (*Local, error) {
	s, err := openLocal(ctx, dir, localSystem{})
	if err != nil {
		return nil, fmt.Errorf("open local store %s: %w", dir, localError(err))
	}
	return s, nil
}

func openLocal(ctx context.Context, dir string, system localSystem) (s *Local, err error) {
	if err := os.MkdirAll(dir, dirMode); err != nil { //nolint:gosec // the operator names it
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s = &Local{root: root, own: rand.Text()[:12], localSystem: localSystem{root.Link, (*os.File).Sync, func(string) {}}}
	if system.link != nil {
		s.link = system.link
	}
	if system.sync != nil {
		s.sync = system.sync
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := root.Mkdir(tmpDir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := s.enter(ctx, dir); err != nil {
		return nil, err
	}
	return s, s.probe(ctx)
}

// Readable by group and others, as far as umask allows: other engines read the tables.
const (
	dirMode  = 0o755
	fileMode = 0o644
)

// enter calls sweep and takes the lock of this process, both under a lock that all processes share. Otherwise another
// process could remove our lock file after we created it and before we locked it.
func (s *Local) enter(ctx context.Context, dir string) error {
	global, err := waitLock(ctx, filepath.Join(dir, tmpDir, "lock"))
	if err != nil {
		return err
	}
	err = s.sweep(dir)
	if err == nil {
		s.lock, err = lockFile(filepath.Join(dir, tmpDir, s.own+".lock"))
	}
	return errors.Join(err, global.Close())
}

// errLocked means that another process holds the lock.
var errLocked = classify.Mark(errors.New("locked by another process"), classify.Transient)

// waitLock takes the lock on a file as soon as no other process holds it. It returns the error of ctx if ctx ends
// first, and [ErrUnsafe] if the file system has no locks.
func waitLock(ctx context.Context, name string) (io.Closer, error) {
	for {
		l, err := lockFile(name)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.ENOLCK):
			return nil, unsafe("the file system has no file locks (%v)", err)
		case !errors.Is(err, errLocked):
			return nil, err
		}
		t := time.NewTimer(10 * time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		case <-t.C:
		}
	}
}

// sweep removes the temporary names of processes that have ended: a process holds the lock on OWN.lock as long as it
// lives, and the kernel drops it even on kill -9. A removed name may be the second link to a finished object, which
// stays.
func (s *Local) sweep(dir string) error {
	names, err := fs.ReadDir(s.root.FS(), tmpDir)
	if err != nil {
		return err
	}
	alive := map[string]bool{}
	for _, e := range names {
		owner, ok := strings.CutSuffix(e.Name(), ".lock")
		if !ok {
			continue
		}
		l, err := lockFile(filepath.Join(dir, tmpDir, e.Name()))
		if err != nil {
			alive[owner] = true
			continue
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	for _, e := range names {
		owner, _, _ := strings.Cut(e.Name(), ".")
		if e.Name() == "lock" || alive[owner] {
			continue
		}
		if err := s.root.RemoveAll(path.Join(tmpDir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// probe lets several goroutines put one fresh name, and returns [ErrUnsafe] unless exactly one put succeeds and the
// file has its content. So it detects file systems without hard links, those that emulate link by copying, and those
// without stable inode numbers. It cannot detect a race between two hosts of a network file system.
func (s *Local) probe(ctx context.Context) error {
	key := path.Join(tmpDir, s.own+".probe")
	defer s.root.Remove(key) //nolint:errcheck // the next sweep removes it, too
	answers := make([]error, selfTestRacers)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = s.write(ctx, key, bytes.NewReader(selfTestBody(i)), IfAbsent) })
	}
	wg.Wait()
	winner := -1
	for i, err := range answers {
		switch {
		case err == nil && winner >= 0:
			return unsafe("of %d puts of one fresh name at least two succeeded", selfTestRacers)
		case err == nil:
			winner = i
		case errors.Is(err, errLink):
			return unsafe("the file system has no hard links as POSIX has them (%v)", err)
		case !errors.Is(err, ErrExists):
			return err // the error, for example of a full disk, says nothing about the safety of the file system
		}
	}
	if winner < 0 {
		return unsafe("no put of a fresh name succeeded")
	}
	if b, err := s.root.ReadFile(key); err != nil || !bytes.Equal(b, selfTestBody(winner)) {
		return unsafe("put number %d of a fresh name succeeded, but the file holds %q (%v)", winner, b, err)
	}
	return nil
}

// Close releases the lock that protects the temporary names of this process, and closes the directory. Puts in progress
// fail.
func (s *Local) Close() error {
	var err error
	if s.lock != nil {
		err = s.lock.Close()
		// A sweep of another process may have removed the file already.
		if e := s.root.Remove(path.Join(tmpDir, s.own+".lock")); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, s.root.Close())
}

// begin runs first in every operation on a key. It returns the error of an ended ctx, refuses an invalid or reserved
// key, and syncs the directory of the key if its last sync failed: see settle.
func (s *Local) begin(ctx context.Context, key string) error {
	if err := begin(ctx.Err(), key); err != nil {
		return err
	}
	if key == tmpDir || strings.HasPrefix(key, tmpDir+"/") || !filepath.IsLocal(filepath.FromSlash(key)) {
		return refuse("key %q is a reserved name", key)
	}
	return s.settle(path.Dir(key))
}

// settle syncs dir if its sync failed after an earlier put. Otherwise a caller could read an object that a power
// failure then removes.
func (s *Local) settle(dir string) error {
	if _, dirty := s.unsynced.Load(dir); !dirty {
		return nil
	}
	if err := s.syncDir(dir); err != nil {
		return localError(err)
	}
	s.unsynced.Delete(dir)
	return nil
}

// Get implements [Store].
func (s *Local) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := s.get(ctx, key, off, n)
	return r, failed(OpGet, key, err)
}

func (s *Local) get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if _, err := s.stat(ctx, key); err != nil {
		return nil, err
	}
	if err := checkRange(off); err != nil {
		return nil, err
	}
	f, err := s.root.Open(key)
	if err == nil && off > 0 {
		if _, err = f.Seek(off, io.SeekStart); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, missingError(err)
	}
	if n < 0 {
		return f, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, n), f}, nil
}

// Head implements [Store].
func (s *Local) Head(ctx context.Context, key string) (Info, error) {
	fi, err := s.stat(ctx, key)
	if err != nil {
		return Info{}, failed(OpHead, key, err)
	}
	return Info{Key: key, Size: fi.Size(), Modified: fi.ModTime()}, nil
}

func (s *Local) stat(ctx context.Context, key string) (fs.FileInfo, error) {
	if err := s.begin(ctx, key); err != nil {
		return nil, err
	}
	fi, err := s.root.Stat(key)
	if err != nil {
		return nil, missingError(err)
	}
	if !fi.Mode().IsRegular() {
		return nil, errNotFound
	}
	return fi, nil
}

// Delete implements [Store]. Directories stay.
func (s *Local) Delete(ctx context.Context, key string) error {
	_, err := s.stat(ctx, key)
	if err == nil {
		err = missingError(s.root.Remove(key))
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return failed(OpDelete, key, err)
}

// Put implements [Store].
func (s *Local) Put(ctx context.Context, key string, body io.ReadSeeker, mode Mode) error {
	err := s.begin(ctx, key)
	if err == nil {
		err = s.write(ctx, key, body, mode)
	}
	return failed(PutKind(mode), key, err)
}

// write puts the body without checking the key. Readers see nothing of the object until write links or renames the
// complete file to the key.
func (s *Local) write(ctx context.Context, key string, body io.ReadSeeker, mode Mode) error {
	name := path.Join(tmpDir, fmt.Sprintf("%s.%d", s.own, s.seq.Add(1)))
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return notSent(err)
	}
	// The next sweep removes a leftover name. After a rename it no longer exists.
	defer func() { _, _ = f.Close(), s.root.Remove(name) }()
	s.step("created")
	if err := s.fill(ctx, f, body); err != nil {
		return notSent(err)
	}
	s.step("synced")
	dir := path.Dir(key)
	if err := s.mkdirAll(dir); err != nil {
		return notSent(err)
	}
	if err := LastCheck(ctx); err != nil {
		return err
	}
	if mode == IfAbsent {
		err = s.publish(f, name, key)
	} else if err = localError(s.root.Rename(name, key)); errors.Is(err, fs.ErrExist) {
		err = refuse("the key is a directory")
	}
	s.step("linked")
	if err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	// After a conflict the object may be our own earlier put, which the caller relies on. So the directory is synced
	// then, too.
	if e := s.syncDir(dir); e != nil {
		// The object is visible, but may not be durable. The outcome is therefore unknown: neither success nor
		// refusal.
		s.unsynced.Store(dir, nil)
		return errors.Join(err, classify.Mark(fmt.Errorf("sync directory: %v", e), classify.Transient)) //nolint:errorlint // see above
	}
	s.step("dirsynced")
	return err
}

// notSent wraps an error that occurred before the object became visible.
func notSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, localError(err)) }

// fill writes the body and makes it durable. A full disk or quota can show up as late as in Sync. After a failed Sync
// the kernel has dropped the pages, so the file is abandoned.
func (s *Local) fill(ctx context.Context, f *os.File, body io.ReadSeeker) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind the body: %w", err)
	}
	if _, err := io.Copy(f, contextReader{ctx, body}); err != nil {
		return err
	}
	return s.sync(f)
}

// contextReader ends a long copy when ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// errLink means that link(2) is missing or not a real link on this file system.
var errLink = errors.New("link")

// publish links the temporary name to the key. It verifies the result: on NFS a reply can be lost and the repeated
// request answered with EEXIST although the name is ours, and some file systems copy instead.
func (s *Local) publish(f *os.File, name, key string) error {
	linkErr := s.link(name, key)
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	found, err := s.root.Lstat(key)
	switch {
	case err == nil && os.SameFile(mine, found):
		return nil
	case err == nil && errors.Is(linkErr, fs.ErrExist) && found.IsDir():
		return refuse("the key is a directory")
	case err == nil && errors.Is(linkErr, fs.ErrExist):
		return errExists
	case linkErr != nil:
		return fmt.Errorf("%w: %w", errLink, localError(linkErr))
	}
	// The name is a copy of the file, or another process deleted it since: the outcome is unknown.
	return fmt.Errorf("%w: the name is not a link to the file (%v)", errLink, err) //nolint:errorlint // not a refusal
}

// mkdirAll makes dir and syncs every parent that got a new entry. Otherwise a power failure can lose the directory
// with the object in it.
func (s *Local) mkdirAll(dir string) error {
	if dir == "." {
		return nil
	}
	// Another process may have made an existing directory a moment ago without having synced its parent yet. So the
	// first use always syncs.
	if _, durable := s.made.Load(dir); durable {
		if _, err := s.root.Stat(dir); err == nil {
			return nil
		}
	}
	parent := path.Dir(dir)
	if err := s.mkdirAll(parent); err != nil {
		return err
	}
	if err := s.root.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.syncDir(parent); err != nil {
		return err
	}
	s.made.Store(dir, nil)
	return nil
}

func (s *Local) syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows cannot sync a directory; NTFS journals the new name
	}
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(s.sync(d), d.Close())
}
