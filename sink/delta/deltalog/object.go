package deltalog

import (
	"context"
	"fmt"
	"io"

	"sluice/sink/delta/objstore"
)

// tailSize is the size of the first read at the end of an object: the footer of a checkpoint, or all of a small one.
const tailSize = 256 << 10

// Object gives random access to an object. It is for one goroutine.
type Object struct {
	ctx   context.Context //nolint:containedctx // io.ReaderAt has none; the value lives as long as one read of a file
	store objstore.Store
	key   string
	size  int64
	tail  []byte
	err   error
}

// OpenObject requests the size of an object and reads its end, where Parquet has its footer. All later reads use ctx.
func OpenObject(ctx context.Context, store objstore.Store, key string) (*Object, error) {
	info, err := store.Head(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	r := &Object{ctx: ctx, store: store, key: key, size: info.Size}
	tail := make([]byte, min(tailSize, r.size))
	if _, err := r.read(tail, r.size-int64(len(tail))); err != nil {
		return nil, err
	}
	r.tail = tail
	return r, nil
}

// Size returns the length of the object in bytes.
func (r *Object) Size() int64 { return r.size }

// Err returns the first error of the store. It distinguishes a failing store from a damaged object.
func (r *Object) Err() error { return r.err }

// ReadAt implements io.ReaderAt.
func (r *Object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= r.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), r.size-off)]
	var n int
	var err error
	if from := off - (r.size - int64(len(r.tail))); from >= 0 {
		n = copy(want, r.tail[from:])
	} else {
		n, err = r.read(want, off)
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (r *Object) read(p []byte, off int64) (int, error) {
	body, err := r.store.Get(r.ctx, r.key, off, int64(len(p)))
	if err == nil {
		defer body.Close()
		var n int
		if n, err = io.ReadFull(body, p); err == nil {
			return n, nil
		}
	}
	r.err = fmt.Errorf("read %s: %w", r.key, err)
	return 0, r.err
}
