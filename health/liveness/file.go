package liveness

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// Touched is the interval at which a living process writes the file.
	Touched = 5 * time.Second
	// Stale is the age of the file above which its process counts as dead: two writes may be missed.
	Stale = 3 * Touched
)

// File is a file that shows that a process is alive: it exists, and it holds a recent time. A nil File does nothing.
type File struct {
	path string

	mu    sync.Mutex
	ended bool
}

// NewFile returns the file at path, nil if path is empty. Only one process may use a path.
func NewFile(path string) *File {
	if path == "" {
		return nil
	}
	return &File{path: path}
}

// Begin writes the file for the first time. It returns an error if the path already holds something other than a
// liveness file, or if the folder does not exist.
func (f *File) Begin(now time.Time) error {
	if f == nil {
		return nil
	}
	switch info, err := os.Lstat(f.path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("liveness file: %w", err)
	case info.IsDir():
		return fmt.Errorf("%s is a folder: name a file in it", f.path)
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: name the file itself", f.path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", f.path)
	default: // the file may come from a process that was killed
		if _, err := written(f.path); errors.Is(err, errNoTime) {
			return fmt.Errorf("%w: it would be overwritten; name another file, or delete it", err)
		}
	}
	switch info, err := os.Stat(filepath.Dir(f.path)); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s: create it, or mount one", filepath.Dir(f.path))
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is no folder", filepath.Dir(f.path))
	}
	return f.Touch(now)
}

// Touch rewrites the file with the time now. Readers see the old or the new content, never a part. If the path is a
// link, Touch replaces the link and not its target. After [File.End] it does nothing.
func (f *File) Touch(now time.Time) (err error) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil
	}
	next := filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // the file was left by a process that was killed
		return fmt.Errorf("liveness file: %w", err)
	}
	out, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // it tells nothing secret
	if err != nil {
		return fmt.Errorf("liveness file: %w", err)
	}
	_, err = io.WriteString(out, now.UTC().Format(time.RFC3339Nano)+"\n")
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(next, f.path)
	}
	if err != nil {
		return fmt.Errorf("liveness file: %w", errors.Join(err, os.Remove(next)))
	}
	return nil
}

// Remove deletes the file, if it is there.
func (f *File) Remove() error {
	if f == nil {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("liveness file: %w", err)
	}
	return nil
}

// End deletes the file for good.
func (f *File) End() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	return f.Remove()
}

// Fresh returns nil if the file at path shows a living process, else an error with the reason. The file is not fresh
// either if its time is more than Stale after now. Then the clock was set back: a living process rewrites the file
// within Touched, a dead process does not.
func Fresh(path string, now time.Time) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no file %s: the process is not alive, has ended or has not begun", path)
	case err != nil:
		return fmt.Errorf("liveness file: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", path)
	}
	at, err := written(path)
	if err != nil {
		return err
	}
	switch age := now.Sub(at); {
	case age > Stale:
		return fmt.Errorf("%s is old: written %s ago, and a process that is alive writes it every %s", path, age.Round(time.Second), Touched)
	case age < -Stale:
		return fmt.Errorf("%s is of the future, by %s: the clock was set back, and no process that is alive has written it since", path, -age.Round(time.Second))
	}
	return nil
}

var errNoTime = errors.New("it holds no time, so it is no liveness file")

// written returns the time in a file. The error is errNoTime if the content is no time.
func written(path string) (time.Time, error) {
	in, err := os.Open(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("liveness file: %w", err)
	}
	defer func() { _ = in.Close() }() // closing cannot lose data: the file was only read
	text, err := io.ReadAll(io.LimitReader(in, 100))
	if err != nil {
		return time.Time{}, fmt.Errorf("liveness file: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", path, errNoTime)
	}
	return at, nil
}
