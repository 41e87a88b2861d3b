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

// fetcher reads from one broker. The Log owns the cursors and its mutex guards them.
type fetcher struct {
	*Log

	broker int32
	end    context.CancelFunc
	ahead  *queue // partitions that have records at the position, or may have
	tail   *queue // partitions that were read to their end

	throttled time.Time // time before which the broker wants no request; guarded by the Log's mutex
}

// queue has the partitions of a fetcher that wait for a request, the next one first. The Log's mutex guards the
// entries.
type queue struct {
	wake    chan struct{}
	entries []entry
}

// entry is a partition in a queue. It is valid while the partition is wanted, its state is queued, and no later entry
// of it has a newer ticket.
type entry struct {
	c      *cursor
	ticket uint64
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// inFlightFetch is the part of one partition in a request in flight. seq and next are the cursor's when the request
// was made; done is true once the response for the partition was handled.
type inFlightFetch struct {
	c    *cursor
	seq  uint64
	next int64
	done bool
}

// start starts the fetcher of a broker. The fetcher ends with ctx, or when prune finds no partition that reads from
// the broker. The caller holds the lock.
func (l *Log) start(ctx context.Context, g *errgroup.Group, broker int32) {
	ctx, end := context.WithCancel(ctx)
	f := &fetcher{Log: l, broker: broker, end: end, ahead: newQueue(), tail: newQueue()}
	l.fetchers[broker] = f
	g.Go(func() error { f.fetching(ctx, f.ahead, 1, 0); return nil })
	g.Go(func() error { f.fetching(ctx, f.tail, l.cfg.MinBytes, l.cfg.MaxWait); return nil })
}

// fetching sends requests for the partitions in q, one at a time, until ctx ends.
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
		resp.forget() // the buffer goes back to the pool
		opener.Forget()
		room.close(err)
		if idle { // a broker may respond at once instead of waiting; it gets only one request per maxWait
			loop.Rest()
			_ = reliability.Wait(ctx, maxWait-time.Since(sent))
		}
	}
}

// reserve waits for the memory of a response. If records are expected (ahead), it also reserves their estimated
// decompressed size.
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

// front returns how many bytes the next request of q needs, 0 if no partition waits in q, and for how long the broker
// still wants no request.
func (f *fetcher) front(q *queue) (size int, throttled time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(q.entries) > 0 {
		if e := q.entries[0]; e.valid() {
			most := f.cfg.MaxBytes
			if q == f.tail { // little data is expected, and its memory stays reserved while the broker waits
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

// take moves partitions from q into req, which requests size bytes, and appends them to flights. A partition that needs
// a request of its own is taken alone.
func (f *fetcher) take(q *queue, size int, req *fetchRequest, flights []inFlightFetch) []inFlightFetch {
	f.mu.Lock()
	defer f.mu.Unlock()
	req.spans, req.maxBytes = req.spans[:0], size
	// The first batch may exceed the requested size. The 1 MiB here, and 1 KiB for each partition below, are for the
	// metadata of partitions.
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

// roundTrip sends a request and settles each of its partitions. idle is true if the broker had no record for any of
// them.
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
		case len(resp.parts) > 0: // left out of a full response
			f.enqueue(c)
		default:
			f.relocate(c, c.retry(errMalformed))
		}
	}
	return idle, nil
}

// landed reports whether the request of a partition is still the current one when its response or error arrives. If
// not, the partition is queued for its newer request, or removed after Forget. The caller holds the lock.
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
	var again time.Time // the same for all, so that one metadata request finds all leaders
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

// largest returns the size limit of a record batch on the wire. The batch and its decompressed content, which is at
// least as large, must fit into Memory together, and buffer sizes are rounded up.
func (q *questions) largest() int { return min(q.cfg.Limits.Batch, int(q.cfg.Memory.Size()*2/5)) }

// tooLarge requests a partition alone after a response that did not fit into memory, because a response for several
// partitions does not show which one was too large. If it was alone already, the hold oversize follows, unless the
// response has a known size within the limit. The caller holds the lock.
func (l *Log) tooLarge(c *cursor, err error) {
	const frame = 64 << 10 // overhead of a response around its record batches
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

// settle handles the response for one partition. first is true for the first partition of the request, which gets a
// whole batch if it has one.
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
	if !f.landed(flight) { // replaced or forgotten while the batches were opened
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
	case bad != nil && !isHold(bad): // no memory is free now and another fetcher waits for some, or this fetcher ends
		f.metrics.failed(bad)
		c.behind = true
		f.enqueue(c)
	case p.err == kafka.OffsetOutOfRange, p.err == 0 && p.divergedAt >= 0:
		f.metrics.failed(kafka.OffsetOutOfRange)
		// A replica may lag behind its leader, so its refusal is not a finding: the leader decides.
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
		answered = batches.Next > c.req.Next // the result owns the records now
		f.served(c, p, batches, bad, first)
	}
}

func isHold(err error) bool {
	var held *hold.Error
	return errors.As(err, &held)
}

// bounds returns the bounds in a response.
func (l *Log) bounds(c *cursor, p *fetchPart) connector.Bounds {
	return connector.Bounds{
		LogStart: p.logStart, LastStable: p.lastStable, HighWatermark: p.highWatermark, LeaderEpoch: c.epoch, DivergedAt: -1,
	}
}

// served handles a response without an error of the broker. If batches were consumed, it enqueues them as a result, and
// drops bad, the error about the batch after them: the next request meets that batch first. Without consumed batches,
// bad ends the request, and without bad the partition is requested again. The caller holds the lock.
func (l *Log) served(c *cursor, p *fetchPart, b *recordbatch.Batches, bad error, first bool) {
	bounds, next := l.bounds(c, p), c.req.Next
	switch {
	case b.Next > next: // at least one batch before a bad one was consumed
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
		// If the broker has more records and yet sent none for the first partition of a request, it needs time: the
		// next request waits at the broker.
		c.behind = next < p.lastStable && !first
		c.maxBytes, c.alone = 0, false
		if c.loggedAt.IsZero() || bounds != c.logged && time.Since(c.loggedAt) >= refreshBounds {
			l.enqueueResult(c, connector.Fetched{Bounds: bounds, Next: next, Epoch: c.req.Epoch})
			return
		}
		l.enqueue(c)
	}
}

// grow requests a partition again, with room for the batch that the response held only in part. A batch larger than the
// limit becomes the hold oversize instead. The caller holds the lock.
func (l *Log) grow(c *cursor, b *recordbatch.Batches, bounds connector.Bounds) {
	need := b.Truncated
	if need == 0 {
		need = 2 * max(c.maxBytes, l.cfg.PartitionBytes)
	}
	if need > l.largest() {
		l.conclude(c, l.oversize(c, "has %d bytes, the limit is %d", need, l.largest()), bounds, l.relocate)
		return
	}
	c.alone = c.maxBytes >= need // it had enough room of its own, so other partitions used up the response
	c.maxBytes, c.behind = need, true
	l.enqueue(c)
}

// abandon schedules a new leader search for the partitions in the queue of a fetcher that has ended.
func (f *fetcher) abandon(q *queue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; len(q.entries) > 0; q.pop() {
		if e := q.entries[0]; e.valid() {
			f.relocate(e.c, time.Now())
		}
	}
}
