package scan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"

	"sluice/sink/delta/bounded"
	"sluice/sink/delta/objstore"
)

const (
	// tailSize is the size of the first read at the end of a file: its footer, or all of a small file.
	tailSize = 256 << 10
	// gap is the number of unwanted bytes between two ranges up to which one request reads both.
	gap = 32 << 10
	// side is the number of ranges of a file that are fetched in parallel.
	side = 8
)

// source gives random access to a data file. It is for one goroutine.
type source struct {
	ctx   context.Context //nolint:containedctx // io.ReaderAt has none; the value lives as long as one read of a file
	store objstore.Store
	key   string
	size  int64
	tail  part
	ahead []part // prefetched ranges, in ascending order
	// err is the first error of the store, which the Parquet reader may hide.
	err error
}

// part is a range of a file in memory.
type part struct {
	from int64
	body []byte
}

func (p part) end() int64 { return p.from + int64(len(p.body)) }

// Size implements [bounded.Source].
func (s *source) Size() int64 { return s.size }

// Err implements [bounded.Source].
func (s *source) Err() error { return s.err }

// open reads the end of the file.
func (s *source) open(mem *bounded.Allocator) error {
	n := min(s.size, tailSize)
	s.tail = part{s.size - n, mem.Allocate(int(n))}
	s.err = s.fetch(s.ctx, s.tail)
	return s.err
}

// fetch fills a part with one request.
func (s *source) fetch(ctx context.Context, p part) error {
	body, err := s.store.Get(ctx, s.key, p.from, int64(len(p.body)))
	if err == nil {
		defer body.Close()
		_, err = io.ReadFull(body, p.body)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // of ReadFull itself: the body ended, the store did not fail
		return unsound("%s has less than the %d bytes that the log says", s.key, s.size)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", s.key, err)
	}
	return nil
}

// prefetch fetches ranges in parallel. They replace the previously prefetched ones.
func (s *source) prefetch(ranges []piece, mem *bounded.Allocator) error {
	s.drop(mem)
	for _, r := range ranges {
		s.ahead = append(s.ahead, part{r.from, mem.Allocate(int(r.to - r.from))})
	}
	fetches, ctx := errgroup.WithContext(s.ctx)
	fetches.SetLimit(side)
	for _, p := range s.ahead {
		fetches.Go(func() error { return s.fetch(ctx, p) })
	}
	s.err = fetches.Wait()
	return s.err
}

// drop frees the prefetched bytes.
func (s *source) drop(mem *bounded.Allocator) {
	for _, p := range s.ahead {
		mem.Free(p.body)
	}
	s.ahead = nil
}

// ReadAt implements io.ReaderAt.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= s.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), s.size-off)]
	if n := s.copyOf(want, off); n < len(want) {
		if err := s.fetch(s.ctx, part{off + int64(n), want[n:]}); err != nil {
			s.err = err
			return n, err
		}
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

// copyOf copies to p the bytes at off that are in memory, up to the end of their part, and returns their number. It is
// 0 if the byte at off is not in memory.
func (s *source) copyOf(p []byte, off int64) int {
	for _, have := range append(slices.Clip(s.ahead), s.tail) {
		if have.from <= off && off < have.end() {
			return copy(p, have.body[off-have.from:])
		}
	}
	return 0
}

// joined merges ranges that lie close to each other. It leaves out the bytes of the tail, which is in memory.
func (s *source) joined(ranges []piece) []piece {
	slices.SortFunc(ranges, func(a, b piece) int { return cmp.Compare(a.from, b.from) })
	var joined []piece
	for _, r := range ranges {
		r.to = min(r.to, s.tail.from)
		if r.from >= r.to {
			continue
		}
		if n := len(joined); n > 0 && r.from-joined[n-1].to <= gap {
			joined[n-1].to = max(joined[n-1].to, r.to)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// piece is a range of a file, [from, to).
type piece struct{ from, to int64 }
