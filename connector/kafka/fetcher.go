package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"sluice/connector"
	"sluice/connector/kafka/recordbatch"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/reliability/pulse"
)

// fetcher reads from one broker the partitions that the broker leads or has a replica of. The Log's mutex guards their
// cursors, which belong to the Log.
type fetcher struct {
	*Log

	broker int32
	end    context.CancelFunc
	ahead  *queue // partitions whose log has, or may have, records at the position
	tail   *queue // partitions that were read to the end of their log

	throttled time.Time // until then the broker wants no request; guarded by the Log's mutex
}

// queue has the partitions that wait for a request of a fetcher, in order. The Log's mutex guards the entries.
type queue struct {
	wake    chan struct{}
	entries []entry
}

// entry is a place of a partition in a queue. The fetcher skips it if it is outdated: the partition is no longer wanted
// or no longer queued, or has a later entry, to which the cursor's ticket then belongs.
type entry struct {
	c      *cursor
	ticket uint64
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// inFlightFetch is one partition of a request that is in flight. The fields seq and next are those of the cursor at the
// time of the request. The field done is true once this partition's part of the response is handled.
type inFlightFetch struct {
	c    *cursor
	seq  uint64
	next int64
	done bool
}

// start starts the fetcher of a broker. The fetcher ends with ctx, or once prune finds that no partition reads from the
// broker. The caller holds the lock.
func (l *Log) start(ctx context.Context, g *errgroup.Group, broker int32) {
	ctx, end := context.WithCancel(ctx)
	f := &fetcher{Log: l, broker: broker, end: end, ahead: newQueue(), tail: newQueue()}
	l.fetchers[broker] = f
	g.Go(func() error { f.fetching(ctx, f.ahead, 1, 0); return nil })
	g.Go(func() error { f.fetching(ctx, f.tail, l.cfg.MinBytes, l.cfg.MaxWait); return nil })
}

// fetching sends requests for the partitions in q, one after the other, until ctx ends.
func (f *fetcher) fetching(ctx context.Context, q *queue, minBytes int, maxWait time.Duration) {
	name := "fetcher " + strconv.Itoa(int(f.broker))
	if q == f.tail {
		name += " tail"
	}
	loop := f.cfg.Loops.Begin(name)
	defer loop.End()
	ctx = pulse.With(ctx, loop)
	defer f.abandon(q)
	var (
		memory = &lender{pool: f.cfg.Memory, wait: func(n int, held int64) ([]byte, error) {
			loop.Wait()
			defer loop.Done()
			return f.cfg.Memory.GetFirst(ctx, n, held)
		}}
		opener  = recordbatch.NewOpener(f.cfg.Limits, memory)
		req     = fetchRequest{broker: f.broker, minBytes: minBytes, wait: maxWait, rack: f.cfg.Rack}
		resp    fetchResponse
		flights []inFlightFetch
	)
	for ctx.Err() == nil {
		loop.Work()
		size, throttled := f.front(q)
		if size == 0 {
			loop.Rest()
			_ = wait(ctx, q.wake, time.Time{})
			continue
		}
		if throttled > 0 {
			loop.Rest()
			_ = reliability.Wait(ctx, throttled)
			continue
		}
		room, err := f.reserve(ctx, size, q == f.ahead, opener)
		if err != nil {
			return
		}
		sent, idle := time.Now(), false
		req.room, memory.room = room.buffer, room
		if flights = f.take(q, size, &req, flights[:0]); len(flights) > 0 {
			idle, err = f.roundTrip(ctx, &req, &resp, opener, room, flights)
		}
		resp.forget() // the buffer of the response goes back to the pool
		opener.Forget()
		room.close(err)
		if idle { // if a broker responds at once instead of waiting for records, it still gets only one request per maxWait
			loop.Rest()
			_ = reliability.Wait(ctx, maxWait-time.Since(sent))
		}
	}
}

// reserve waits until the pool has memory for a response of size bytes, and takes it. ahead means that records are
// expected; then it also takes the estimated memory of the decompressed records.
func (f *fetcher) reserve(ctx context.Context, size int, ahead bool, opener *recordbatch.Opener) (*requestMemory, error) {
	pool := f.cfg.Memory
	n := int64(size)
	if ahead {
		n = max(n, min(n+int64(opener.Expect(size)), pool.Size()/3))
	}
	n = min(n, pool.Size())
	loop := pulse.Of(ctx)
	loop.Wait()
	defer loop.Done()
	if err := pool.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return &requestMemory{pool: pool, reserved: n}, nil
}

// front returns the size in bytes of the next request for q, 0 if no partition waits in q. If throttled is positive,
// the fetcher must wait that long first, because the broker throttles.
func (f *fetcher) front(q *queue) (size int, throttled time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(q.entries) > 0 {
		if e := q.entries[0]; e.valid() {
			most := f.cfg.MaxBytes
			if q == f.tail { // at the end of a log, little data is expected, and the memory is reserved while the broker waits
				most = min(most, f.cfg.PartitionBytes)
			}
			return max(most, e.c.maxBytes), time.Until(f.throttled)
		}
		q.pop()
	}
	return 0, 0
}

func (e entry) valid() bool { return e.c.state == queued && e.c.ticket == e.ticket && e.c.wanted }

func (q *queue) pop() {
	q.entries[0] = entry{}
	if q.entries = q.entries[1:]; len(q.entries) == 0 {
		q.entries = nil
	}
}

// take moves partitions from the front of q into req, a request for size bytes, and appends them to flights. A
// partition whose field alone is true gets a request without other partitions.
func (f *fetcher) take(q *queue, size int, req *fetchRequest, flights []inFlightFetch) []inFlightFetch {
	f.mu.Lock()
	defer f.mu.Unlock()
	req.spans, req.maxBytes = req.spans[:0], size
	// The limit leaves room for a first batch that exceeds the requested size, and for the fields around the records: 1
	// MiB here, and 1 KiB for each partition below.
	req.limit = max(size, f.largest()) + 1<<20
	for ; len(q.entries) > 0; q.pop() {
		e := q.entries[0]
		if !e.valid() {
			continue
		}
		c := e.c
		if c.alone && len(flights) > 0 {
			break
		}
		c.state = inFlight
		flights = append(flights, inFlightFetch{c: c, seq: c.seq, next: c.req.Next})
		req.spans = append(req.spans, fetchSpan{
			topic: c.req.Partition.TopicID, name: c.req.Partition.Topic, id: c.req.Partition.ID, leaderEpoch: c.epoch,
			offset: c.req.Next, lastEpoch: c.req.Epoch, maxBytes: max(f.cfg.PartitionBytes, c.maxBytes),
		})
		req.limit += 1 << 10
		if c.alone {
			q.pop()
			break
		}
	}
	return flights
}

// roundTrip sends one request and handles the response for each partition in it. idle is true if the response had no
// records for any partition.
func (f *fetcher) roundTrip(ctx context.Context, req *fetchRequest, resp *fetchResponse, opener *recordbatch.Opener,
	room *requestMemory, flights []inFlightFetch,
) (idle bool, err error) {
	loop := pulse.Of(ctx)
	loop.Wait()
	err = f.client.fetch(ctx, req, resp)
	loop.Done()
	if err != nil {
		f.fetchFailed(ctx, flights, err)
		return false, err
	}
	idle = true
	room.keep(opener.Expect(resp.bytes()))
	f.metrics.fetched(resp.bytes(), resp.throttle)
	f.mu.Lock()
	f.endTrouble(troubleScope{broker: f.broker})
	f.spoke(f.broker, resp.version)
	if until := time.Now().Add(resp.throttle); until.After(f.throttled) {
		f.throttled = until
	}
	f.mu.Unlock()
	for i := range resp.parts {
		p := &resp.parts[i]
		idle = idle && len(p.records) == 0
		flight := &flights[p.index]
		if !flight.done {
			flight.done = true
			f.settle(opener, flight, p, p.index == 0)
			loop.Turn()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range flights {
		switch c := flights[i].c; {
		case flights[i].done || !f.landed(&flights[i]):
		case len(resp.parts) > 0: // the response was full before this partition
			f.enqueue(c)
		default:
			f.relocate(c, c.retry(errMalformed))
		}
	}
	return idle, nil
}

// landed is called when the response or error of a request arrives for a partition. It returns true if Fetch and Forget
// were not called for the partition since the request. After a newer Fetch it queues the partition again and returns
// false; after Forget it removes the partition and returns false. The caller holds the lock.
func (l *Log) landed(f *inFlightFetch) bool {
	c := f.c
	switch {
	case !c.wanted:
		c.state = resting
		if p := c.req.Partition; l.cursors[p] == c {
			delete(l.cursors, p)
		}
		return false
	case c.seq != f.seq:
		l.enqueue(c)
		return false
	}
	return true
}

// fetchFailed schedules the retry of all partitions of a failed request.
func (f *fetcher) fetchFailed(ctx context.Context, flights []inFlightFetch, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := ctx.Err() != nil
	if !ended {
		f.metrics.failed(err)
		if !errors.Is(err, errResponseSize) {
			f.trouble(troubleScope{broker: f.broker}, err)
		}
	}
	var again time.Time // one time for all partitions, so that one metadata request finds all leaders
	for i := range flights {
		c := flights[i].c
		if !f.landed(&flights[i]) {
			continue
		}
		switch {
		case ended:
			f.relocate(c, time.Now())
		case errors.Is(err, errResponseSize):
			f.tooLarge(c, err)
		default:
			c.replicaUntil = time.Time{}
			if at := c.retry(err); again.IsZero() {
				again = at
			}
			f.relocate(c, again)
		}
	}
}

// largest returns the size limit for one compressed record batch, in bytes: Limits.Batch, but at most 2/5 of Memory.
// Memory must have room for the batch and for its decompressed records, and sizes of buffers are rounded up.
func (q *questions) largest() int { return min(q.cfg.Limits.Batch, int(q.cfg.Memory.Size()*2/5)) }

// tooLarge handles a response for which there was no memory. If the request had several partitions, it is not known
// whose part was too large, so the next request has this partition alone. If it was alone already, the partition gets
// the hold oversize, unless the size of the response is known to be within the limit. The caller holds the lock.
func (l *Log) tooLarge(c *cursor, err error) {
	const frame = 64 << 10 // what a response has around its record batches
	var size *sizeError
	known := errors.As(err, &size) && size.bytes <= l.largest()+frame
	if c.alone && !known {
		l.conclude(c, l.oversize(c, "is larger than %d bytes", l.largest()), noBounds(), l.relocate)
		return
	}
	if c.alone, c.behind = true, true; known {
		c.maxBytes = max(c.maxBytes, size.bytes)
	}
	l.enqueue(c)
}

// settle handles the response for one partition. first is true for the first partition in the request, for which a
// broker sends a whole batch even if the batch exceeds the requested size.
func (f *fetcher) settle(opener *recordbatch.Opener, flight *inFlightFetch, p *fetchPart, first bool) {
	f.mu.Lock()
	ok := f.landed(flight)
	f.mu.Unlock()
	if !ok {
		return
	}
	var (
		batches = &recordbatch.Batches{Next: flight.next}
		bad     error
	)
	if p.err == 0 && p.divergedAt < 0 {
		batches, bad = opener.Open(p.records, flight.next, p.aborted)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answered := false
	defer func() {
		if !answered {
			batches.Release()
		}
	}()
	if !f.landed(flight) { // the request was replaced or forgotten while the batches were opened
		return
	}
	c := flight.c
	switch {
	case errors.Is(bad, recordbatch.ErrNeverRoom):
		f.metrics.failed(bad)
		if c.alone {
			f.conclude(c, f.oversize(c, "does not fit into memory"), f.bounds(c, p), f.relocate)
			return
		}
		c.alone, c.behind = true, true
		f.enqueue(c)
	case bad != nil && !isHold(bad): // there is no memory now and another fetcher waits for memory, or this fetcher ends
		f.metrics.failed(bad)
		c.behind = true
		f.enqueue(c)
	case p.err == kafka.OffsetOutOfRange, p.err == 0 && p.divergedAt >= 0:
		f.metrics.failed(kafka.OffsetOutOfRange)
		// A replica may lag, so its refusal of a position is no finding. The partition is read from the leader next,
		// and the leader's log decides.
		c.replicaUntil, c.unchecked = time.Time{}, f.broker != c.leader
		f.suspect(c, time.Now())
	case p.unchecked && p.err == 0 && c.req.Epoch >= 0 && c.req.Epoch < c.epoch && c.checked != c.epoch:
		c.unchecked = true
		f.suspect(c, time.Now())
	case p.err == kafka.InvalidMessage:
		f.metrics.failed(p.err)
		h := hold.New(hold.CorruptBatch,
			fmt.Sprintf("the broker finds the record batch at offset %d corrupt", flight.next), p.err)
		f.conclude(c, h, f.bounds(c, p), f.relocate)
	case p.err != 0:
		f.metrics.failed(p.err)
		c.replicaUntil = time.Time{}
		f.relocate(c, c.retry(p.err))
		f.troublePartition(c, p.err)
	case p.preferred >= 0 && p.preferred != f.broker && len(p.records) == 0:
		c.replica, c.replicaUntil = p.preferred, time.Now().Add(followReplica)
		f.relocate(c, time.Now())
	default:
		f.endTrouble(troubleScope{broker: noBroker, partition: c.req.Partition})
		answered = batches.Next > c.req.Next // the result has the records now, so they must not be released here
		f.served(c, p, batches, bad, first)
	}
}

func isHold(err error) bool {
	var held *hold.Error
	return errors.As(err, &held)
}

// bounds returns the ends of a partition's log that a response contains. DivergedAt is -1, because they say nothing
// about it.
func (l *Log) bounds(c *cursor, p *fetchPart) connector.Bounds {
	return connector.Bounds{
		LogStart: p.logStart, LastStable: p.lastStable, HighWatermark: p.highWatermark, LeaderEpoch: c.epoch, DivergedAt: -1,
	}
}

// served handles a response for one partition in which the broker reported no error. The caller holds the lock.
//
// If batches were consumed, they become the result. bad is the error about the batch after them, nil if there is none;
// it is dropped then, because the next request begins with that batch. If no batch was consumed, bad becomes the
// result. If bad is nil, too, the partition is requested again.
func (l *Log) served(c *cursor, p *fetchPart, b *recordbatch.Batches, bad error, first bool) {
	bounds, next := l.bounds(c, p), c.req.Next
	switch {
	case b.Next > next: // at least one batch was consumed, perhaps before a bad one
		c.served()
		c.maxBytes, c.alone, c.behind = 0, false, b.Next < p.lastStable
		a := connector.Fetched{Bounds: bounds, Next: b.Next, Epoch: b.Epoch}
		if b.Count > 0 {
			a.Records, a.Bytes = b, b.Bytes
			l.metrics.delivered(b.Count, b.Bytes)
		}
		l.enqueueResult(c, a)
	case bad != nil:
		l.metrics.failed(bad)
		l.conclude(c, bad, bounds, l.relocate)
	case len(p.records) > 0:
		l.grow(c, b, bounds)
	default:
		c.served()
		// If the broker has committed records and sent none, although the partition was the first of the request, it
		// cannot send them yet. So the next request waits at the broker.
		c.behind = next < p.lastStable && !first
		c.maxBytes, c.alone = 0, false
		if c.loggedAt.IsZero() || bounds != c.logged && time.Since(c.loggedAt) >= refreshBounds {
			l.enqueueResult(c, connector.Fetched{Bounds: bounds, Next: next, Epoch: c.req.Epoch})
			return
		}
		l.enqueue(c)
	}
}

// grow handles a response that has only a part of the next batch: it requests the partition again, with room for the
// whole batch. If the batch is larger than the limit, the partition gets the hold oversize. The caller holds the lock.
func (l *Log) grow(c *cursor, b *recordbatch.Batches, bounds connector.Bounds) {
	need := b.Truncated
	if need == 0 {
		need = 2 * max(c.maxBytes, l.cfg.PartitionBytes)
	}
	if need > l.largest() {
		l.conclude(c, l.oversize(c, "has %d bytes, the limit is %d", need, l.largest()), bounds, l.relocate)
		return
	}
	// If the last request had enough room for this batch, other partitions took the room. So the next request has this
	// partition alone.
	c.alone = c.maxBytes >= need
	c.maxBytes, c.behind = need, true
	l.enqueue(c)
}

// abandon is called when a fetcher has ended. For each partition that waits in its queue, it schedules a new lookup of
// the partition's leader.
func (f *fetcher) abandon(q *queue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; len(q.entries) > 0; q.pop() {
		if e := q.entries[0]; e.valid() {
			f.relocate(e.c, time.Now())
		}
	}
}
