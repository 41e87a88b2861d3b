package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/classify"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// changed is a store with one method replaced.
type changed struct {
	objstore.Store
	put  func(context.Context, string, io.ReadSeeker, objstore.Mode) error
	get  func(context.Context, string, int64, int64) (io.ReadCloser, error)
	list func(context.Context, string, string) iter.Seq2[objstore.Info, error]
}

func (c changed) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	if c.put == nil {
		return c.Store.Put(ctx, key, body, mode)
	}
	return c.put(ctx, key, body, mode)
}

func (c changed) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if c.get == nil {
		return c.Store.Get(ctx, key, off, n)
	}
	return c.get(ctx, key, off, n)
}

func (c changed) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if c.list == nil {
		return c.Store.List(ctx, prefix, after)
	}
	return c.list(ctx, prefix, after)
}

// TestSelfTestRefuses: the self-test refuses stores that are each unsafe in one way. The error must contain the text
// that the map has as its key.
func TestSelfTestRefuses(t *testing.T) {
	for want, unsafe := range map[string]func(m *objstore.Mem) objstore.Store{
		// Every put ignores the condition.
		"at least two were accepted": func(m *objstore.Mem) objstore.Store {
			return changed{Store: m, put: func(ctx context.Context, k string, b io.ReadSeeker, _ objstore.Mode) error {
				return m.Put(ctx, k, b, objstore.Replace)
			}}
		},
		// Concurrent puts obey the condition; the later ones ignore it.
		"the store ignores the condition": func(m *objstore.Mem) objstore.Store {
			var puts atomic.Int32
			return changed{Store: m, put: func(ctx context.Context, k string, b io.ReadSeeker, mode objstore.Mode) error {
				if puts.Add(1) <= 8 {
					return m.Put(ctx, k, b, mode)
				}
				return nil
			}}
		},
		"changed the object all the same": func(m *objstore.Mem) objstore.Store {
			var puts atomic.Int32
			return changed{Store: m, put: func(ctx context.Context, k string, b io.ReadSeeker, mode objstore.Mode) error {
				err := m.Put(ctx, k, b, mode)
				if puts.Add(1) > 8 {
					err = errors.Join(m.Delete(ctx, k), m.Put(ctx, k, b, mode), objstore.ErrExists)
				}
				return err
			}}
		},
		"all of 8 puts of one fresh key": func(m *objstore.Mem) objstore.Store {
			return changed{Store: m, put: func(context.Context, string, io.ReadSeeker, objstore.Mode) error { return objstore.ErrExists }}
		},
		"holds other content": func(m *objstore.Mem) objstore.Store {
			return changed{Store: m, put: func(ctx context.Context, k string, _ io.ReadSeeker, mode objstore.Mode) error {
				return m.Put(ctx, k, strings.NewReader("none of them"), mode)
			}}
		},
		"is not found": func(m *objstore.Mem) objstore.Store {
			return changed{Store: m, get: func(context.Context, string, int64, int64) (io.ReadCloser, error) {
				return nil, objstore.ErrNotFound
			}}
		},
		"is not listed": func(m *objstore.Mem) objstore.Store {
			return changed{Store: m, list: func(context.Context, string, string) iter.Seq2[objstore.Info, error] {
				return func(func(objstore.Info, error) bool) {}
			}}
		},
		"ignores start-after": func(m *objstore.Mem) objstore.Store {
			return changed{Store: m, list: func(ctx context.Context, prefix, _ string) iter.Seq2[objstore.Info, error] {
				return m.List(ctx, prefix, "")
			}}
		},
		// The store first checks whether the key exists, and then writes. So all racers find that it does not exist.
		"of 8 puts of one fresh key with If-None-Match: * at least two": func(m *objstore.Mem) objstore.Store {
			var looked sync.WaitGroup
			looked.Add(8)
			return changed{Store: m, put: func(ctx context.Context, k string, b io.ReadSeeker, _ objstore.Mode) error {
				_, err := m.Head(ctx, k)
				looked.Done()
				looked.Wait()
				if !errors.Is(err, objstore.ErrNotFound) {
					return objstore.ErrExists
				}
				return m.Put(ctx, k, b, objstore.Replace)
			}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			m := objstore.NewMem()
			err := objstore.SelfTest(t.Context(), unsafe(m))
			if !errors.Is(err, objstore.ErrUnsafe) || classify.Of(err) != classify.Fatal || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			for i, err := range m.List(t.Context(), "", "") {
				t.Errorf("left behind: %s, %v", i.Key, err)
			}
		})
	}
}

// TestSelfTestCannotTell: the self-test does not call a store unsafe that is down or denies requests.
func TestSelfTestCannotTell(t *testing.T) {
	for name, c := range map[string]struct {
		fault objstoretest.Fault
		kind  objstore.OpKind
		class classify.Class
	}{
		"put fails":        {objstoretest.Fault{Err: objstoretest.ErrUnavailable}, objstore.OpPutIfAbsent, classify.Transient},
		"answers are lost": {objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: objstoretest.Done}, objstore.OpPutIfAbsent, classify.Transient},
		"only conflicts":   {objstoretest.Fault{Err: objstoretest.ErrConflict}, objstore.OpPutIfAbsent, classify.Transient},
		"put is denied":    {objstoretest.Fault{Err: objstoretest.ErrDenied}, objstore.OpPutIfAbsent, classify.Fatal},
		"get fails":        {objstoretest.Fault{Err: objstoretest.ErrUnavailable}, objstore.OpGet, classify.Transient},
		"get breaks off":   {objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: objstoretest.Done}, objstore.OpGet, classify.Transient},
		"list is denied":   {objstoretest.Fault{Err: objstoretest.ErrDenied}, objstore.OpList, classify.Fatal},
		"delete fails":     {objstoretest.Fault{Err: objstoretest.ErrUnavailable}, objstore.OpDelete, classify.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			s := objstoretest.NewFaulty(objstore.NewMem(), func(o objstore.Op) objstoretest.Fault {
				if o.Kind == c.kind {
					return c.fault
				}
				return objstoretest.Fault{}
			})
			err := objstore.SelfTest(t.Context(), s)
			if err == nil || errors.Is(err, objstore.ErrUnsafe) || classify.Of(err) != c.class {
				t.Error(err)
			}
		})
	}
}

// TestSelfTestWithoutDelete: a store that denies deletes passes the self-test.
func TestSelfTestWithoutDelete(t *testing.T) {
	s := objstoretest.NewFaulty(objstore.NewMem(), func(o objstore.Op) objstoretest.Fault {
		if o.Kind == objstore.OpDelete {
			return objstoretest.Fault{Err: objstoretest.ErrDenied}
		}
		return objstoretest.Fault{}
	})
	if err := objstore.SelfTest(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// TestMemAsserts: [objstore.Mem] refuses a put that would overwrite a log entry, and records it.
func TestMemAsserts(t *testing.T) {
	m := objstore.NewMem()
	if err := m.Put(t.Context(), "log/0", bytes.NewReader([]byte("a")), objstore.IfAbsent); err != nil {
		t.Fatal(err)
	}
	err := m.Put(t.Context(), "log/0", bytes.NewReader([]byte("b")), objstore.Replace)
	if !errors.Is(err, objstore.ErrRefused) || len(m.Violations()) != 1 {
		t.Errorf("%v, %q", err, m.Violations())
	}
}
