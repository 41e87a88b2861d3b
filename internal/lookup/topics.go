// Package lookup reads records outside of the pipeline: it reads partitions without a group, and it finds the records of
// dead letters in tables and Kafka.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/idempotency/offsets"
	"sluice/internal/config"
	"sluice/internal/open"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// Reader reads partitions one after the other. It is not safe for concurrent use.
type Reader struct {
	Client *kafka.Client
	Log    *kafka.Log
	// Ask sends a request to Kafka. It repeats a request that fails transiently, up to the reader's time limit.
	Ask     func(func(context.Context) error) error
	within  time.Duration
	session uint64
	block   [1000]connector.Record
}

// NewReader returns a reader with its own client. Each request may take as long as within. The caller calls end after the
// last use.
func NewReader(ctx context.Context, c *config.Config, within time.Duration) (r *Reader, end func(), err error) {
	client, err := open.Kafka(c, nil, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	size := int(c.Kafka.Fetch.MaxBytes)
	r, stop := Through(ctx, client, kafka.LogConfig{Memory: c.Budget.Pools().Fetch, PartitionBytes: size, MaxBytes: size}, c.Guard(), within)
	return r, func() { stop(); client.Close() }, nil
}

// Through returns a reader that uses an existing client. The caller calls end after the last use; the client stays open.
func Through(ctx context.Context, client *kafka.Client, o kafka.LogConfig, patient reliability.Config, within time.Duration) (r *Reader, end func()) {
	quiet := slog.New(slog.DiscardHandler) // failures are returned as errors, so they are not logged
	log := kafka.NewLog(client, o, quiet, nil)
	reading, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(reading) }) // Run returns when its context ends
	guard := reliability.NewGuard("kafka", patient, quiet, nil)
	r = &Reader{Client: client, Log: log, within: within, Ask: func(question func(context.Context) error) error {
		asking, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return Patience(asking, guard)(question)
	}}
	return r, func() { stop(); running.Wait() }
}

// Each calls do for every committed record of a partition, in order. It stops at an error of do and returns that error. It
// skips records that retention deletes during the read.
func (r *Reader) Each(ctx context.Context, p connector.Partition, do func(*connector.Record) error) error {
	defer r.Log.Forget(p)
	bounds, err := r.Bounds(p)
	if err != nil {
		return err
	}
	return r.Span(ctx, p, bounds.LogStart, bounds.LastStable, do, func(int64) error { return nil })
}

// Span calls do for every committed record of [from, to) of a partition, in order. After each fetch result it calls passed
// with the next offset. It stops at an error of do or passed and returns that error.
func (r *Reader) Span(ctx context.Context, p connector.Partition, from, to int64, do func(*connector.Record) error, passed func(int64) error) error {
	return r.span(ctx, p, from, to, do, passed, nil)
}

// ErrExpired means that retention deleted records during a read.
var ErrExpired = errors.New("retention deleted records during the read")

// SpanOrExpired is [Reader.Span], except that it ends with [ErrExpired] where retention deletes records during the read.
func (r *Reader) SpanOrExpired(ctx context.Context, p connector.Partition, from, to int64, do func(*connector.Record) error, passed func(int64) error) error {
	return r.span(ctx, p, from, to, do, passed, ErrExpired)
}

// span is [Reader.Span] if expired is nil. If not, it returns expired where retention deletes records during the read.
func (r *Reader) span(
	ctx context.Context, p connector.Partition, from, to int64, do func(*connector.Record) error, passed func(int64) error, expired error,
) error {
	defer r.Log.Forget(p)
	for at := from; at < to; {
		f, err := r.Fetch(ctx, p, at)
		if ReasonOf(err) == hold.BehindLogStart {
			if expired != nil {
				return expired
			}
			var bounds connector.Bounds
			if bounds, err = r.Bounds(p); err == nil {
				at = max(at, bounds.LogStart)
				continue
			}
		}
		if err == nil {
			err = r.EachIn(&f, to, do)
		}
		if err == nil {
			at = f.Next
			err = passed(min(at, to))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// At calls do for the committed records of a partition at some offsets, in order. It skips gaps between the offsets, and
// records that no longer exist. It stops at an error of do and returns that error.
func (r *Reader) At(ctx context.Context, p connector.Partition, at offsets.Set, do func(*connector.Record) error) error {
	defer r.Log.Forget(p)
	next := at.From(0)
	for next.OK {
		f, err := r.Fetch(ctx, p, next.At)
		if ReasonOf(err) == hold.BehindLogStart {
			var bounds connector.Bounds
			if bounds, err = r.Bounds(p); err == nil {
				next.Has(bounds.LogStart)
				continue
			}
		}
		if err == nil {
			err = r.EachIn(&f, at.End(), func(record *connector.Record) error {
				if next.Has(record.Offset) {
					return do(record)
				}
				return nil
			})
		}
		if err != nil {
			return err
		}
		next.Has(f.Next)
	}
	return nil
}

// EachIn calls do for the records of a fetch result whose offsets are below end, and releases the fetch result. It
// stops at an error of do and returns that error.
func (r *Reader) EachIn(f *connector.Fetched, end int64, do func(*connector.Record) error) error {
	defer release(f)
	for f.Records != nil {
		n, err := f.Records.Read(r.block[:])
		for i := range r.block[:n] {
			if r.block[i].Offset >= end {
				return nil
			}
			if err := do(&r.block[i]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ReasonOf returns the reason of the [hold.Error] in err, "" if there is none.
func ReasonOf(err error) hold.Reason {
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return held.Reason
	}
	return ""
}

// Topic returns a topic from the cluster's current metadata. For a missing topic the error is a [hold.Error] with
// hold.TopicMissing.
func (r *Reader) Topic(name string) (topic connector.Topic, err error) {
	err = r.Ask(func(ctx context.Context) (err error) {
		topic, err = r.Log.Topic(ctx, name)
		return err
	})
	return topic, err
}

// Bounds returns the log bounds of a partition. It returns an error if the partition does not exist.
func (r *Reader) Bounds(p connector.Partition) (connector.Bounds, error) {
	var all map[connector.Partition]connector.Bounds
	err := r.Ask(func(ctx context.Context) (err error) {
		all, err = r.Log.Bounds(ctx, []connector.Position{{Partition: p, Next: -1, Epoch: -1}})
		return err
	})
	b, there := all[p]
	if err == nil && !there {
		err = errors.New("the topic was deleted or created again during the read")
	}
	return b, err
}

// Fetch requests the records from an offset on and waits for the fetch result, which the caller releases. It returns an
// error if none arrives in the time limit of the reader, or Kafka denies the partition.
func (r *Reader) Fetch(ctx context.Context, p connector.Partition, at int64) (connector.Fetched, error) {
	r.session++
	r.Log.Fetch(connector.FetchRequest{Position: connector.Position{Partition: p, Next: at, Epoch: -1}, Session: r.session})
	timeout, poll := time.NewTimer(r.within), time.NewTicker(time.Second)
	defer timeout.Stop()
	defer poll.Stop()
	for {
		select {
		case f := <-r.Log.Fetched():
			if f.Partition == p && f.Session == r.session {
				return f, f.Err
			}
			release(&f)
		case <-poll.C: // a partition to which Kafka denies access ends the wait
			if trouble, ok := r.Log.TroubleOf(p); ok && trouble.Partition == p && trouble.Reason == hold.KafkaDenied {
				return connector.Fetched{}, trouble.Err
			}
		case <-timeout.C:
			err := fmt.Errorf("no records from offset %d on within %v", at, r.within)
			if trouble, ok := r.Log.TroubleOf(p); ok {
				err = fmt.Errorf("%w: %w", err, trouble.Err)
			}
			return connector.Fetched{}, err
		case <-ctx.Done():
			return connector.Fetched{}, context.Cause(ctx)
		}
	}
}

// release releases the memory of a fetch result.
func release(f *connector.Fetched) {
	if f.Records != nil {
		f.Records.Release()
	}
}

// Patience returns a function that repeats a request that fails transiently (a coordinator moves, a broker starts) until ctx
// ends. Then its error has the last failure.
func Patience(ctx context.Context, g *reliability.Guard) func(func(context.Context) error) error {
	return func(question func(context.Context) error) error {
		err := g.Do(ctx, question)
		if last := g.Status().Err; err != nil && ctx.Err() != nil && last != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
		return err
	}
}
