package intake

import (
	"errors"
	"io"
	"time"

	"sluice/connector/lane"
	"sluice/connector/plan"
)

// dispatcher moves records from the fetch results of claims to the queues of their lanes.
type dispatcher struct {
	*base

	room    *room
	holds   *holds
	fetches *fetches
	pauses  *pauseLog

	turn int // rotates the order of claims, so that each of them comes first in turn
}

// enqueue moves records from the claims to their lanes, in rounds of one block per claim, until no claim can continue
// or backpressure starts. While a claim waits for memory that will be free soon (room.first), only that claim enqueues.
func (d *dispatcher) enqueue() {
	d.room.first = d.room.firstWaiting()
	for again := true; again; {
		again = false
		d.turn++
		for i := range d.order {
			c := d.order[(i+d.turn)%len(d.order)]
			if len(c.queue) == 0 || d.room.first != nil && d.room.first != c {
				continue
			}
			if !d.pauses.queueOpen() {
				return
			}
			again = d.enqueueBlock(c) || again
		}
	}
}

// enqueueBlock enqueues one block of a claim, or finishes a fetch result that has no more records, and returns true. If
// the key of the next record, the batch pool or the lane has no room, it returns false, and the records stay with the
// claim.
func (d *dispatcher) enqueueBlock(c *claim) bool {
	if c.table.sealed != nil && d.room.batchFull(c.table) {
		return false // a sealed batch is being committed and the next one is full, so records stay with the claim
	}
	if c.parsed == nil && !d.parse(c) {
		return true // the fetch result had no more records and is finished
	}
	a := d.admit(c)
	if a.records == 0 {
		return false
	}
	reserved, ok := d.room.reserve(c, max(c.table.OpenBatch.Estimate(a.bytes, a.records), a.worst))
	if !ok {
		d.readmit(c.parsed)
		return false
	}
	epoch := c.queue[0].Epoch
	b := d.block(c, a, reserved)
	first, last, since := b.Records[0].Offset, b.Records[a.records-1].Offset, b.Since // taken before sending, because the lane owns the block afterwards
	if !d.send(c, b) {
		return false
	}
	c.enqueued(inFlight{c.next, last + 1, a.oldest}, since)
	c.pass(last+1, epoch, first)
	if c.table.opened.IsZero() {
		c.table.opened = since
	}
	if c.state == retrying {
		d.holds.release(c)
	}
	d.Metrics.read.Add(float64(a.records))
	return true
}

// parse parses the next records of a claim's first fetch result into a block. If there are none, it finishes that
// result and returns false.
func (d *dispatcher) parse(c *claim) bool {
	f := c.queue[0]
	b := d.blocks.Get(f)
	var n int
	err := io.EOF
	if f.Records != nil && !f.Read {
		n, err = f.Records.Read(b.Records[:lane.BlockRecords])
	}
	if n == 0 {
		d.blocks.Put(b)
		d.fetches.finishResult(c, f, err)
		return false
	}
	if err != nil { // the end of the fetch result, or a damaged batch after these records
		f.Read = true
		if !errors.Is(err, io.EOF) {
			f.Err = err
		}
	}
	b.Records = b.Records[:n]
	c.parsed = b
	return true
}

// admitted describes the records of a block for which the queue has room.
type admitted struct {
	records, bytes int   // bytes is the total size of the records
	worst          int64 // the memory that the records would need if all of them were bad
	oldest         int64 // the smallest timestamp; 0 if no record has one
}

// admit reserves room in the queue for records of a claim's block, beginning with the first. It stops at a record whose
// key has no room, and at blockBytes.
func (d *dispatcher) admit(c *claim) (a admitted) {
	b := c.parsed
	for i := range b.Records {
		rec := &b.Records[i]
		size := rec.Size()
		if a.bytes > 0 && a.bytes+size > blockBytes {
			break
		}
		a.bytes += size
		if c.letters {
			a.worst += lane.Weight(rec)
		}
		slot := d.backpressure.Slot(c.Partition, rec.Key)
		if !d.backpressure.Reserve(slot) {
			if i == 0 && !c.keyFull && d.backpressure.KeyFull(slot) { // this partition waits for its key; other partitions continue
				c.keyFull = true
				d.Metrics.keyWaits.WithLabelValues(c.Topic).Inc()
			}
			break
		}
		c.keyFull = false
		b.Taken = append(b.Taken, slot)
		a.oldest = plan.Earliest(a.oldest, rec.Timestamp)
	}
	a.records = len(b.Taken)
	return a
}

// readmit undoes admit: it releases the room in the queue for these records.
func (d *dispatcher) readmit(b *lane.Block) {
	d.backpressure.Release(b.Taken)
	b.Taken = b.Taken[:0]
}

// block takes the admitted records from the claim, and sets what a lane needs to know about them. The other records of
// the parsed block stay with the claim.
func (d *dispatcher) block(c *claim, a admitted, reserved int64) *lane.Block {
	b := c.parsed
	if c.parsed = nil; a.records < len(b.Records) {
		b, c.parsed = d.split(b, a.records)
	}
	b.Table, b.Schema, b.Partition, b.Session, b.Reserved = &c.table.Table, c.table.schema, c.Partition, c.session, reserved
	b.Refuse, b.Health, b.Origins, b.Letters = c.refuse, c.health, c.origins, c.letters
	b.Progress, b.Since, b.Oldest = c.laneProgress, time.Now(), a.oldest
	return b
}

// send enqueues a block to the lane of its claim. If the queue of the lane is full, send undoes what was done for the
// block and returns false; the lane will wake the reader.
func (d *dispatcher) send(c *claim, b *lane.Block) bool {
	n := int64(len(b.Records))
	c.table.OpenBatch.Queued.Add(n)
	if c.lane.Enqueue(b) {
		return true
	}
	c.table.OpenBatch.Queued.Add(-n)
	d.room.unreserve(c.table, b.Reserved)
	d.readmit(b)
	c.parsed = d.join(b, c.parsed)
	return false
}

// split moves the first ready records of a block into out and the others into rest. It returns the old block to the
// pool.
func (d *dispatcher) split(b *lane.Block, ready int) (out, rest *lane.Block) {
	out, rest = d.blocks.Get(b.Result), d.blocks.Get(b.Result)
	out.Records = append(out.Records, b.Records[:ready]...)
	out.Taken = append(out.Taken, b.Taken...)
	rest.Records = append(rest.Records, b.Records[ready:]...)
	d.blocks.Put(b)
	return out, rest
}

// join undoes split: it appends the records of rest to out, returns the block rest to the pool, and returns out. rest
// may be nil.
func (d *dispatcher) join(out, rest *lane.Block) *lane.Block {
	if rest == nil {
		return out
	}
	out.Records = append(out.Records, rest.Records...)
	d.blocks.Put(rest)
	return out
}
