package opslog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/classify"
	"sluice/reliability"
	"sluice/sink/delta/objstore"
	"sluice/sink/logappend"
)

// BrokenError means that an entry was changed, removed or rewritten. Its class is Fatal. Seq is the first bad entry.
type BrokenError struct {
	Seq int64
	Why string
}

// Error names the seq and the reason.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("the operations log is broken at seq %d: %s", e.Seq, e.Why)
}

func broken(seq int64, format string, args ...any) error {
	return classify.Mark(&BrokenError{seq, fmt.Sprintf(format, args...)}, classify.Fatal)
}

// ErrUndecided means that a put of an entry has an unknown outcome: the entry may be in the log, or may still appear.
var ErrUndecided = errors.New("operation undecided")

// readAhead is the number of entries that are read in parallel, so that a long log does not cost one round trip per
// entry.
const readAhead = 16

// bucket is the place of one pipeline's entries. The guard retries reads. Puts are not retried here: package
// logappend decides what their outcome means.
type bucket struct {
	store objstore.Store
	guard *reliability.Guard
	dir   string
	snapshots
}

// do retries a read until it succeeds or the object is known to be absent.
func (b bucket) do(ctx context.Context, question func(context.Context) error) error {
	var answer error
	err := b.guard.Do(ctx, func(ctx context.Context) error {
		if answer = question(ctx); errors.Is(answer, objstore.ErrNotFound) {
			return nil
		}
		return answer
	})
	if err != nil {
		return b.failed(ctx, err)
	}
	return answer
}

// failed adds the store's last error to err if ctx ended while the guard was retrying.
func (b bucket) failed(ctx context.Context, err error) error {
	if ctx.Err() == nil || classify.Of(err) == classify.Fatal {
		return err
	}
	if last := b.guard.Status().Err; last != nil && !errors.Is(err, last) {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return classify.Mark(err, classify.Canceled)
}

// readOnce returns the object of an entry, or objstore.ErrNotFound; read retries it.
func (b bucket) readOnce(ctx context.Context, seq int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, logappend.TryTimeout)
	defer cancel()
	r, err := b.store.Get(ctx, b.dir+name(seq), 0, MaxEntry+1) // MaxEntry plus one byte, so that parse notices an object that is too large
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func (b bucket) read(ctx context.Context, seq int64) (object []byte, err error) {
	err = b.do(ctx, func(ctx context.Context) (err error) {
		object, err = b.readOnce(ctx, seq)
		return err
	})
	return object, err
}

// exists reports whether there is an object at a seq.
func (b bucket) exists(ctx context.Context, seq int64) (bool, error) {
	err := b.do(ctx, func(ctx context.Context) error {
		_, err := b.store.Head(ctx, b.dir+name(seq))
		return err
	})
	if errors.Is(err, objstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// listed is the result of listing the entries after a seq.
type listed struct {
	last    int64           // largest seq that exists, or the seq of the request if no entry follows it
	stamps  map[int64]stamp // stamps of all listed entries, by seq
	foreign []string        // keys of foreign objects, at most maxForeign of them
	more    int             // number of foreign objects that the list leaves out
}

// maxForeign bounds the keys of foreign objects that a list keeps: anyone with write access to the bucket can add
// millions.
const maxForeign = 1000

// stamp is the identity of an object as a list shows it. A changed stamp means that the object was rewritten.
type stamp struct {
	size     int64
	modified time.Time
}

// runs yields the seqs that exist as contiguous ranges (first, last) in order. Gaps cost nothing: one object with a
// very large seq must not cause a request for each seq before it.
func (f listed) runs() iter.Seq2[int64, int64] {
	return func(yield func(first, last int64) bool) {
		seqs := slices.Sorted(maps.Keys(f.stamps))
		for i := 0; i < len(seqs); {
			end := i + 1
			for end < len(seqs) && seqs[end]-1 == seqs[end-1] {
				end++
			}
			if !yield(seqs[i], seqs[end-1]) {
				return
			}
			i = end
		}
	}
}

// list finds the entries after a seq. After seq 0 it finds all foreign objects, else those whose key sorts after the
// entry.
func (b bucket) list(ctx context.Context, previous int64) (found listed, err error) {
	after := ""
	if previous > 0 {
		after = b.dir + name(previous)
	}
	err = b.do(ctx, func(ctx context.Context) error {
		found = listed{last: previous, stamps: map[int64]stamp{}}
		for o, err := range b.store.List(ctx, b.dir, after) {
			if err != nil {
				return err
			}
			seq, ok := seqOf(o.Key[len(b.dir):])
			if !ok {
				if len(found.foreign) < maxForeign {
					found.foreign = append(found.foreign, o.Key)
				} else {
					found.more++
				}
				continue
			}
			found.last, found.stamps[seq] = seq, stamp{o.Size, o.Modified}
		}
		return nil
	})
	return found, err
}

// readAll reads the objects [from, to], several in parallel, and passes them to take in order. A missing object is
// nil.
func (b bucket) readAll(ctx context.Context, from, to int64, take func(seq int64, object []byte) error) error {
	for ; from <= to; from += readAhead {
		n := min(readAhead-1, to-from) + 1
		objects := make([][]byte, n)
		group, reading := errgroup.WithContext(ctx)
		for i := range n {
			group.Go(func() error {
				object, err := b.read(reading, from+i)
				if err != nil && !errors.Is(err, objstore.ErrNotFound) {
					return err
				}
				objects[i] = object
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for i, object := range objects {
			if err := take(from+int64(i), object); err != nil {
				return err
			}
		}
	}
	return nil
}

// chain is a verified prefix of the log, or one that began with a snapshot. It belongs to one goroutine at a time.
type chain struct {
	bucket
	state *State
	from  Head      // the snapshot that the chain began with; zero if it began with the first entry
	stamp stamp     // stamp of the head's object when it was read
	seen  time.Time // when the head was last known to be the newest entry
}

// refresh extends the chain to the newest entry. An empty chain begins with the newest snapshot. After a [BrokenError]
// the chain ends at the last good entry.
func (c *chain) refresh(ctx context.Context) error {
	if c.state.head.Seq == 0 {
		if started, err := c.start(ctx); started || err != nil {
			return err
		}
	}
	return c.extend(ctx)
}

// extend reads the entries after the head.
func (c *chain) extend(ctx context.Context) error {
	began := time.Now()
	head := c.state.head
	found, err := c.list(ctx, max(head.Seq-1, 0))
	if err != nil {
		return err
	}
	if head.Seq > 0 {
		if err := c.stands(ctx, found.stamps[head.Seq]); err != nil {
			return err
		}
	}
	err = c.readAll(ctx, head.Seq+1, found.last, func(seq int64, object []byte) error {
		_, err := c.add(seq, object)
		if err == nil {
			c.stamp = found.stamps[seq]
		}
		return err
	})
	if err == nil && c.state.head.Seq < c.from.Seq {
		err = broken(c.from.Seq, "it was there and is missing now")
	}
	if err == nil {
		c.seen = began
	}
	return err
}

// add adds the object as the next entry of the chain, and returns the entry.
func (c *chain) add(seq int64, object []byte) (Entry, error) {
	e, err := link(c.state.head, seq, object)
	if err != nil {
		return e, err
	}
	if seq == c.from.Seq && e.hash != c.from.Hash {
		return e, broken(seq, "it was written anew")
	}
	c.state = c.state.after(e)
	return e, nil
}

// stands returns nil if now, the stamp of the head's object in a new list, equals the stored stamp. Otherwise it reads
// the object: it stores now if the object has the hash of the head, else it returns a [BrokenError].
func (c *chain) stands(ctx context.Context, now stamp) error {
	if now == c.stamp {
		return nil
	}
	head := c.state.head
	object, err := c.read(ctx, head.Seq)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return broken(head.Seq, "it was there and is missing now")
	case err != nil:
		return err
	case hashOf(object) != head.Hash:
		return broken(head.Seq, "it was written anew")
	}
	c.stamp = now
	return nil
}

// link parses object as the entry that follows head. It returns a [BrokenError] if the object is missing, is no entry
// of this seq, or names another hash than that of head.
func link(head Head, seq int64, object []byte) (Entry, error) {
	if object == nil {
		return Entry{}, broken(seq, "it is missing, and there are later ones")
	}
	e, err := parse(object)
	switch {
	case err != nil:
		return e, broken(seq, "%v", err)
	case e.Seq != seq:
		return e, broken(seq, "it says that it is seq %d", e.Seq)
	case e.Prev != head.Hash:
		return e, broken(head.Seq, "it was written anew: seq %d names another hash", seq)
	}
	return e, nil
}
