package intake

import (
	"errors"
	"io"
	"time"

	"sluice/connector/lane"
	"sluice/connector/plan"
)

// enqueue moves records from the claims to their lanes, block by block in turns, as long as the valve is open. While a claim
// waits for memory that becomes free soon, it alone enqueues.
func (r *Reader) enqueue() {
	r.first = r.foremost()
	for again := true; again; {
		again = false
		r.turn++
		for i := range r.order {
			c := r.order[(i+r.turn)%len(r.order)]
			if len(c.queue) == 0 || r.first != nil && r.first != c {
				continue
			}
			if !r.open() {
				return
			}
			again = r.enqueueBlock(c) || again
		}
	}
}

// enqueueBlock enqueues at most one block of a claim and reports whether anything moved. A block that finds no room stays with
// the claim: in its key, in the batch pool, or in its lane.
func (r *Reader) enqueueBlock(c *claim) bool {
	if c.table.cutting != nil && r.full(c.table) {
		return false // one sealed batch on its way, one batch full: what is fetched waits with the claim
	}
	if c.parsed == nil && !r.parse(c) {
		return true // the fetch result is through
	}
	a := r.admit(c)
	if a.records == 0 {
		return false
	}
	reserved, ok := r.reserve(c, max(c.table.Filled.Estimate(a.bytes, a.records), a.worst))
	if !ok {
		r.readmit(c.parsed)
		return false
	}
	epoch := c.queue[0].Epoch
	b := r.block(c, a, reserved)
	first, last, since := b.Records[0].Offset, b.Records[a.records-1].Offset, b.Since // the lane owns the block once it has it
	if !r.send(c, b) {
		return false
	}
	c.handed(flight{c.next, last + 1, a.oldest}, since)
	c.pass(last+1, epoch, first)
	if c.table.opened.IsZero() {
		c.table.opened = since
	}
	if c.state == retrying {
		r.release(c)
	}
	r.Metrics.read.Add(float64(a.records))
	return true
}

// parse reads the next records of a claim's first fetch result into a block. If there are none it ends that result and returns
// false.
func (r *Reader) parse(c *claim) bool {
	f := c.queue[0]
	b := r.blocks.Get(f)
	var n int
	err := io.EOF
	if f.Records != nil && !f.Read {
		n, err = f.Records.Read(b.Records[:lane.BlockRecords])
	}
	if n == 0 {
		r.blocks.Put(b)
		r.finish(c, f, err)
		return false
	}
	if err != nil { // the end, or a damaged batch behind these records
		f.Read = true
		if !errors.Is(err, io.EOF) {
			f.Err = err
		}
	}
	b.Records = b.Records[:n]
	c.parsed = b
	return true
}

// admitted is the beginning of a block that found room in the queue.
type admitted struct {
	records, bytes int   // bytes of values
	worst          int64 // bytes of memory that the records need if all are bad
	oldest         int64 // the least timestamp, 0 without one
}

// admit takes room in the queue for the first records of a claim's block: as far as their keys have room, and up to blockBytes.
func (r *Reader) admit(c *claim) (a admitted) {
	b := c.parsed
	for i := range b.Records {
		rec := &b.Records[i]
		if a.bytes > 0 && a.bytes+len(rec.Value) > blockBytes {
			break
		}
		a.bytes += len(rec.Value)
		if c.letters {
			a.worst += lane.Weight(rec)
		}
		slot := r.valve.Slot(c.Partition, rec.Key)
		if !r.valve.Take(slot) {
			if i == 0 && !c.keyFull && r.valve.Full(slot) { // this key has its share queued: this partition waits, others go on
				c.keyFull = true
				r.Metrics.keyWaits.WithLabelValues(c.Topic).Inc()
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

// readmit undoes admit.
func (r *Reader) readmit(b *lane.Block) {
	r.valve.Give(b.Taken)
	b.Taken = b.Taken[:0]
}

// block takes the admitted records from a claim, and leaves it the others. The block knows all that a lane needs.
func (r *Reader) block(c *claim, a admitted, reserved int64) *lane.Block {
	b := c.parsed
	if c.parsed = nil; a.records < len(b.Records) {
		b, c.parsed = r.split(b, a.records)
	}
	b.Table, b.Schema, b.Partition, b.Session, b.Reserved = &c.table.Table, c.table.schema, c.Partition, c.session, reserved
	b.Refuse, b.Health, b.Letters = c.refuse, c.health, c.letters
	b.Trail, b.Since, b.Oldest = c.trail, time.Now(), a.oldest
	return b
}

// send sends a block to the lane of its claim. If the lane's queue is full, it undoes all that was done for the block: the lane
// will wake the reader.
func (r *Reader) send(c *claim, b *lane.Block) bool {
	n := int64(len(b.Records))
	c.table.Filled.Queued.Add(n)
	if c.lane.Enqueue(b) {
		return true
	}
	c.table.Filled.Queued.Add(-n)
	r.unreserve(c.table, b.Reserved)
	r.readmit(b)
	c.parsed = r.join(b, c.parsed)
	return false
}

// split moves the records that found room into a block of their own.
func (r *Reader) split(b *lane.Block, ready int) (out, rest *lane.Block) {
	out, rest = r.blocks.Get(b.Answer), r.blocks.Get(b.Answer)
	out.Records = append(out.Records, b.Records[:ready]...)
	out.Taken = append(out.Taken, b.Taken...)
	rest.Records = append(rest.Records, b.Records[ready:]...)
	r.blocks.Put(b)
	return out, rest
}

// join undoes split.
func (r *Reader) join(out, rest *lane.Block) *lane.Block {
	if rest == nil {
		return out
	}
	out.Records = append(out.Records, rest.Records...)
	r.blocks.Put(rest)
	return out
}
