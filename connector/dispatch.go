package connector

import (
	"errors"
	"io"
	"time"
)

// enqueue moves records from the claims to their lanes, block by block in turns, as long as the valve is open. While a claim
// waits for memory that becomes free soon, it alone enqueues.
func (r *reader) enqueue() {
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
func (r *reader) enqueueBlock(c *claim) bool {
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
	reserved, ok := r.reserve(c, max(c.table.filled.ratio.estimate(a.bytes, a.records), a.worst))
	if !ok {
		r.readmit(c.parsed)
		return false
	}
	epoch := c.queue[0].Epoch
	b := r.block(c, a, reserved)
	first, last, since := b.records[0].Offset, b.records[a.records-1].Offset, b.since // the lane owns the block once it has it
	if !r.send(c, b) {
		return false
	}
	c.handed(flight{c.next, last + 1, a.oldest}, since)
	c.pass(last+1, epoch, first)
	if c.table.opened.IsZero() {
		c.table.opened = since
	}
	if c.hold != nil && !c.unproven {
		r.release(c)
	}
	r.metrics.read.Add(float64(a.records))
	return true
}

// parse reads the next records of a claim's first fetch result into a block. If there are none it ends that result and returns
// false.
func (r *reader) parse(c *claim) bool {
	f := c.queue[0]
	b := r.blocks.get(f)
	var n int
	err := io.EOF
	if f.Records != nil && !f.read {
		n, err = f.Records.Read(b.records[:blockRecords])
	}
	if n == 0 {
		r.blocks.put(b)
		r.finish(c, f, err)
		return false
	}
	if err != nil { // the end, or a damaged batch behind these records
		f.read = true
		if !errors.Is(err, io.EOF) {
			f.Err = err
		}
	}
	b.records = b.records[:n]
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
func (r *reader) admit(c *claim) (a admitted) {
	b := c.parsed
	for i := range b.records {
		rec := &b.records[i]
		if a.bytes > 0 && a.bytes+len(rec.Value) > blockBytes {
			break
		}
		a.bytes += len(rec.Value)
		if c.letters {
			a.worst += weight(rec)
		}
		slot := r.valve.slot(c.Partition, rec.Key)
		if !r.valve.take(slot) {
			if i == 0 && !c.keyFull && r.valve.full(slot) { // this key has its share queued: this partition waits, others go on
				c.keyFull = true
				r.metrics.keyWaits.WithLabelValues(c.Topic).Inc()
			}
			break
		}
		c.keyFull = false
		b.taken = append(b.taken, slot)
		a.oldest = older(a.oldest, rec.Timestamp)
	}
	a.records = len(b.taken)
	return a
}

// readmit undoes admit.
func (r *reader) readmit(b *block) {
	r.valve.give(b.taken)
	b.taken = b.taken[:0]
}

// block takes the admitted records from a claim, and leaves it the others. The block knows all that a lane needs.
func (r *reader) block(c *claim, a admitted, reserved int64) *block {
	b := c.parsed
	if c.parsed = nil; a.records < len(b.records) {
		b, c.parsed = r.split(b, a.records)
	}
	b.table, b.schema, b.partition, b.session, b.reserved = c.table, c.table.schema, c.Partition, c.session, reserved
	b.refuse, b.health, b.letters = c.refuse, c.health, c.letters
	b.trail, b.since, b.oldest = c.trail, time.Now(), a.oldest
	return b
}

// send sends a block to the lane of its claim. If the lane's queue is full, it undoes all that was done for the block: the lane
// will wake the reader.
func (r *reader) send(c *claim, b *block) bool {
	n := int64(len(b.records))
	c.table.filled.queued.Add(n)
	select {
	case c.lane.in <- laneWork{block: b}:
		return true
	default:
		c.table.filled.queued.Add(-n)
		r.unreserve(c.table, b.reserved)
		r.readmit(b)
		c.parsed = r.join(b, c.parsed)
		return false
	}
}

// split moves the records that found room into a block of their own.
func (r *reader) split(b *block, ready int) (out, rest *block) {
	out, rest = r.blocks.get(b.answer), r.blocks.get(b.answer)
	out.records = append(out.records, b.records[:ready]...)
	out.taken = append(out.taken, b.taken...)
	rest.records = append(rest.records, b.records[ready:]...)
	r.blocks.put(b)
	return out, rest
}

// join undoes split.
func (r *reader) join(out, rest *block) *block {
	if rest == nil {
		return out
	}
	out.records = append(out.records, rest.records...)
	r.blocks.put(rest)
	return out
}
