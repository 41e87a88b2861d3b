package delta

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"sluice/connector"
	"sluice/sink/delta/datafile"
	"sluice/sink/delta/objstore"
)

const (
	// smallFile is the size of a data file up to which the time of a put is mostly the latency of the store. A larger file
	// is put alone: several would need much memory and would hardly be faster.
	smallFile = 1 << 20
	// filesAtOnce is how many small files of a table partition are put or deleted at once: one after the other, the 10 000
	// files of a batch with as many values would take minutes. Those in flight have at most 8 MiB, and leave most of the
	// store's 64 requests to other tables.
	filesAtOnce = 8
)

// puts puts the data files of one call of Stage. Small files of a table with partitions are put by up to filesAtOnce
// goroutines, which have ended when the method end returns. All other files are put by the caller's goroutine, one after
// the other.
type puts struct {
	table   *Table
	store   retried
	several bool // true if the table has partitions
	group   *errgroup.Group
	ctx     context.Context //nolint:containedctx // of the call of Stage; it also ends with the first error of a put
	cancel  context.CancelFunc
	waiting atomic.Int64 // the bytes of files that goroutines have not put yet
	needed  int64        // about the bytes that the commit needs for the files, put or not
	done    int          // the number of pieces that the encoder no longer uses
}

func (t *Table) newPuts(ctx context.Context, batch string, several bool) *puts {
	p := &puts{table: t, store: t.store.of(batch), several: several}
	ctx, p.cancel = context.WithCancel(ctx)
	p.group, p.ctx = errgroup.WithContext(ctx)
	p.group.SetLimit(filesAtOnce)
	return p
}

// counting returns a function that passes progress of the encoder on, with the bytes that are still needed after it.
func (p *puts) counting(progress func(done int, encoded int64)) func(done int, encoded int64) {
	if progress == nil || !p.several {
		return progress
	}
	return func(done int, encoded int64) {
		p.done = done
		progress(done, encoded+p.waiting.Load()+p.needed)
	}
}

// put puts a file, or lets a goroutine put it. It waits while filesAtOnce goroutines put files.
func (p *puts) put(key string, file datafile.File) error {
	if !p.several || file.Size > smallFile {
		return p.now(key, file)
	}
	p.waiting.Add(file.Size)
	p.group.Go(func() (err error) {
		defer p.waiting.Add(-file.Size)
		defer func() {
			if v := recover(); v != nil {
				err = connector.Recovered("put data file", v)
			}
		}()
		return p.now(key, file)
	})
	return nil
}

func (p *puts) now(key string, file datafile.File) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if _, err := file.Body.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("put data file: %w", err)
	}
	if err := p.store.Put(p.ctx, key, file.Body, objstore.Replace); err != nil {
		return p.table.failed(fmt.Errorf("put data file: %w", err))
	}
	return nil
}

// end waits until all goroutines have ended, and returns the first error: that of a put, or encoding, the error of the
// encoder. After an error it cancels the puts in flight.
func (p *puts) end(encoding error) error {
	own := encoding != nil && p.ctx.Err() == nil // no put has failed before
	if encoding != nil {
		p.cancel()
	}
	err := p.group.Wait()
	p.cancel()
	if own || err == nil {
		return encoding
	}
	return err
}
