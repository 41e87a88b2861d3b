package objstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
)

// Mem is a store in memory, for tests. It has no goroutines and uses the clock of the process, so it works inside a
// synctest bubble. It asserts that an object put with IfAbsent is never replaced: a put that would do so fails and is
// recorded for [Mem.Violations].
type Mem struct {
	mu         sync.Mutex
	objects    map[string]memObject
	violations []string
}

type memObject struct {
	body      []byte
	modified  time.Time
	exclusive bool // the object was put with IfAbsent
}

// NewMem returns an empty store.
func NewMem() *Mem { return &Mem{objects: map[string]memObject{}} }

// Violations returns the recorded violations of the store's rules.
func (m *Mem) Violations() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.violations)
}

func (m *Mem) find(ctx context.Context, key string) (memObject, error) {
	if err := begin(ctx.Err(), key); err != nil {
		return memObject{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return o, errNotFound
	}
	return o, nil
}

// Get implements [Store].
func (m *Mem) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	o, err := m.find(ctx, key)
	if err == nil {
		err = checkRange(off)
	}
	if err != nil {
		return nil, failed(OpGet, key, err)
	}
	from, to := min(off, int64(len(o.body))), int64(len(o.body))
	if n >= 0 {
		to = from + min(n, to-from)
	}
	return io.NopCloser(bytes.NewReader(o.body[from:to:to])), nil
}

// Head implements [Store].
func (m *Mem) Head(ctx context.Context, key string) (Info, error) {
	o, err := m.find(ctx, key)
	if err != nil {
		return Info{}, failed(OpHead, key, err)
	}
	return Info{Key: key, Size: int64(len(o.body)), Modified: o.modified}, nil
}

// Put implements [Store].
func (m *Mem) Put(ctx context.Context, key string, body io.ReadSeeker, mode Mode) error {
	return failed(PutKind(mode), key, m.put(ctx, key, body, mode))
}

func (m *Mem) put(ctx context.Context, key string, body io.ReadSeeker, mode Mode) error {
	if err := begin(ctx.Err(), key); err != nil {
		return err
	}
	b, err := readWhole(body)
	if err != nil {
		return err
	}
	if err := LastCheck(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, exists := m.objects[key]
	switch {
	case exists && mode == IfAbsent:
		return errExists
	case exists && old.exclusive:
		m.violations = append(m.violations, fmt.Sprintf("put of %s replaces what was put with if-absent", key))
		return refuse("it would replace an object that was put with if-absent")
	}
	m.objects[key] = memObject{body: b, modified: time.Now(), exclusive: mode == IfAbsent}
	return nil
}

// readWhole returns a copy of body from its start.
func readWhole(body io.ReadSeeker) ([]byte, error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("%w: rewind the body: %w", ErrNotSent, err)
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("%w: read the body: %w", ErrNotSent, err)
	}
	return b, nil
}

// List implements [Store]. It yields the objects that exist when the iteration begins.
func (m *Mem) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		m.mu.Lock()
		var found []Info
		for k, o := range m.objects {
			if strings.HasPrefix(k, prefix) && k > after {
				found = append(found, Info{Key: k, Size: int64(len(o.body)), Modified: o.modified})
			}
		}
		m.mu.Unlock()
		slices.SortFunc(found, func(a, b Info) int { return strings.Compare(a.Key, b.Key) })
		for i := 0; ; i++ {
			if err := ctx.Err(); err != nil {
				yield(Info{}, failed(OpList, prefix, err))
				return
			}
			if i == len(found) || !yield(found[i], nil) {
				return
			}
		}
	}
}

// Delete implements [Store].
func (m *Mem) Delete(ctx context.Context, key string) error {
	if err := begin(ctx.Err(), key); err != nil {
		return failed(OpDelete, key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}
