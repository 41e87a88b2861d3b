package connector

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"sluice/idempotency"
	"sluice/reliability/bytepool"
	"sluice/reliability/pulse"
)

const (
	blockRecords = 1000
	// A chunk is sealed at these sizes and becomes one row group. A power of two of rows would double the buffers, whose
	// offsets need one more.
	chunkRows  = 65_000
	chunkBytes = 16 << 20
	// A record of this size or more may get a chunk of its own.
	largeRecord = 2 << 20
	laneQueue   = 64 // blocks and markers; the valve bounds the records in them
)

// A block is records of one claim on their way to a lane.
type block struct {
	answer    *answer // whose memory the records are in
	table     *tableState
	schema    Schema
	partition Partition
	session   uint64
	trail     *trail // of the session
	refuse    Refusals
	health    *healthFilter // of the topic; nil drops nothing
	letters   bool          // bad records may become letters
	reserved  int64         // of the batch pool, in bytes
	since     time.Time     // when it was handed over
	oldest    int64         // the least timestamp of its records, 0 if none has one
	records   []Record
	taken     []uint16 // the valve's slot of each record
}

// laneWork is what passes through a lane's queue, in order: a block, or a marker that closes or drops what is open.
type laneWork struct {
	block *block
	table *tableState // of a marker
	cut   *openCut    // where the lane's part goes; nil drops it
}

// A lane decodes on its own goroutine. It decides nothing and never touches the network: what it cannot decode becomes a
// candidate. The rows of a claim all pass through one lane, so that their order is the order of their offsets.
type lane struct {
	id       int
	in       chan laneWork
	progress chan<- struct{} // tells the reader that room was given back
	valve    *valve
	blocks   *blockPool
	metrics  *metrics
	batch    *bytepool.Pool
	chunk    *chunkLimit
	loops    *pulse.Loops
	records  *recordLog

	open map[*tableState]*openChunk
}

// openChunk is what a lane holds of the batch that fills for a table.
type openChunk struct {
	schema     Schema
	builder    Builder
	broken     error // why the schema has no builder
	runs       []Run
	chunks     []Chunk
	candidates []Candidate
	dropped    []Dropped
	// lastDropped finds a session's newest in dropped.
	lastDropped map[uint64]int
	// sealedRows, sealedBytes and sealedHeld are those of chunks.
	sealedRows, sealedBytes, sealedHeld int64
	letters                             int64    // bytes of candidates
	fed                                 int64    // bytes of values in the chunk that fills
	trails                              []*trail // with something in the batch that fills
	failed                              *failure
	ignored                             ignoredNames
	apart                               bool // the next row starts a run: a bad record lies before it
	// stopped are sessions with a bad record that can have no letter: what follows it would be dropped by decide.
	stopped map[uint64]bool
	// counted is this lane's share of the table's filled.
	counted struct{ rows, bytes, bad, held int64 }
}

func (o *openChunk) count(t *tableState, rows, bytes, bad int64) {
	o.counted.rows += rows
	o.counted.bytes += bytes
	o.counted.bad += bad
	t.filled.rows.Add(rows)
	t.filled.bytes.Add(bytes)
	t.filled.bad.Add(bad)
}

// filled is what all lanes hold open for a table. The reader looks at it to know when a batch is due.
type filled struct {
	rows, bytes atomic.Int64 // bytes of columns, and of bad records
	bad         atomic.Int64
	queued      atomic.Int64 // records handed over and not looked at yet
	failed      atomic.Int64 // lanes whose decoder failed: what is open is not usable
	passed      atomic.Bool  // a record became a row, ever
	held        atomic.Int64 // of the batch pool, blocks on their way included
	ratio       ratio
}

// records is how many records the batch has so far, as rows or as candidates.
func (f *filled) records() int64 { return f.rows.Load() + f.bad.Load() }

func (l *lane) run(ctx context.Context) {
	loop := l.loops.Begin("lane " + strconv.Itoa(l.id))
	defer loop.End()
	defer l.dropAll()
	for {
		loop.Rest()
		select {
		case w := <-l.in:
			loop.Work()
			switch {
			case w.block != nil:
				l.decode(ctx, w.block)
			case w.cut != nil:
				p, held := l.close(w.table, true)
				w.cut.held.Add(held)
				w.cut.parts <- p
				w.cut.passed.Add(1)
				l.tell()
			default:
				l.drop(w.table)
			}
		case <-ctx.Done():
			return
		}
	}
}

// dropAll releases what is still open at the end.
func (l *lane) dropAll() {
	for t := range l.open {
		l.drop(t)
	}
}

// drop releases what is open for a table.
func (l *lane) drop(t *tableState) {
	p, _ := l.close(t, false)
	p.release(l.batch)
	if o := l.open[t]; o != nil {
		l.free(t, o)
	}
	l.tell()
}

// free gives up a table's builder, with the buffers that are left in it.
func (l *lane) free(t *tableState, o *openChunk) {
	delete(l.open, t)
	t.filled.held.Add(-o.counted.held)
	l.batch.Adjust(-o.counted.held)
	o.counted.held = 0
}

func (l *lane) decode(ctx context.Context, b *block) {
	o := l.open[b.table]
	if o == nil {
		o = &openChunk{stopped: map[uint64]bool{}, ignored: ignoredNames{}}
		l.open[b.table] = o
	}
	if o.schema != b.schema {
		l.seal(b.table, o)
		o.schema = b.schema
		o.builder, o.broken = builderOf(b)
	}
	rows, bytes := o.size()
	bad := len(o.candidates)
	logging := l.records.enabled(ctx)
	known, suspects := b.table.isolated.in(b.partition), b.table.isolated.suspects(b.partition)
	for i := range b.records {
		if o.stopped[b.session] || o.failed != nil {
			break
		}
		r := &b.records[i]
		if _, judged := known[r.Offset]; !judged && suspects.has(r.Offset) {
			if err := probe(b, r); isLocal(err) {
				l.fail(b, r, o, err)
				break
			}
		}
		if became := l.row(b, r, o, known); logging && became != "" {
			l.records.tell(ctx, b.partition, r, became)
		}
	}
	l.settle(b.table, o, b.reserved)
	if o.builder != nil {
		rowsNow, bytesNow := o.size()
		o.count(b.table, rowsNow-rows, bytesNow-bytes, 0)
		ignored := o.builder.Ignored()
		l.metrics.ignored.Add(float64(ignored.Fields))
		o.ignored.add(b.partition.Topic, ignored.Names, ignored.More)
		rows = rowsNow - rows
	}
	if n := len(b.records); n > 0 && o.failed == nil && b.trail.done(b, b.records[n-1].Offset+1, rows > 0 || len(o.candidates) > bad) {
		o.trails = append(o.trails, b.trail)
	}
	b.table.filled.queued.Add(-int64(len(b.records)))
	l.valve.give(b.taken)
	l.blocks.put(b)
	l.tell()
}

// tell has the reader look again.
func (l *lane) tell() { wake(l.progress) }

func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// row appends one record, or notes why it cannot be one. known is what was found about records of its partition before.
// The result says what became of the record, "" if it will be read again.
func (l *lane) row(b *block, r *Record, o *openChunk, known map[int64]verdict) (became string) {
	if len(r.Headers) > 0 && b.health != nil && b.health.drops(b.partition, r) {
		o.drop(b.partition, b.session, r.Offset)
		return recordIsHealthRecord
	}
	err := b.refuse.Of(r)
	if err == nil && r.Value == nil && !b.table.nulls {
		l.metrics.tombstones.Inc()
		return recordIsTombstone
	}
	// What would be most of a chunk gets one of its own: encoding it takes several times its size.
	alone := int64(len(r.Value)) > max(l.chunk.Load()/4, largeRecord)
	if alone {
		l.seal(b.table, o)
	}
	v, isKnown := known[r.Offset]
	if err == nil {
		err = v.err
	}
	if err == nil {
		err = l.append(b, r, o)
	}
	switch {
	case o.failed != nil:
		return "" // the chunk before this record could not be sealed: the record is read again with it
	case isLocal(err):
		l.fail(b, r, o, err)
		return ""
	case err != nil:
		c, pass := candidate(b, r, err)
		if isKnown {
			c.Retries, c.First, c.Last = v.retries, v.first, v.last
		}
		o.reject(b, &c, pass)
		return recordIsBad
	}
	o.extendRun(b, r)
	if l.chunkFull(o, r) || alone {
		l.seal(b.table, o)
	}
	return recordIsRow
}

// append appends one record to the chunk, or to the next one if it is full.
func (l *lane) append(b *block, r *Record, o *openChunk) error {
	if o.broken != nil || o.failed != nil {
		return o.broken
	}
	err := add(o.builder, b.partition, r)
	if !errors.Is(err, ErrChunkFull) || o.builder.Rows() == 0 {
		return err
	}
	if l.seal(b.table, o); o.failed != nil {
		return err
	}
	return add(o.builder, b.partition, r)
}

// reject keeps a bad record as a candidate. pass says whether the claim goes on behind it.
func (o *openChunk) reject(b *block, c *Candidate, pass bool) {
	o.candidates, o.letters = append(o.candidates, *c), o.letters+c.held
	o.stopped[b.session], o.apart = !pass, true
	if !pass {
		b.trail.stop(c.Offset)
	}
	o.count(b.table, 0, c.held, 1)
}

// extendRun notes which record the newest row stems from. Runs end at bad records, and where the claim or its session changes.
func (o *openChunk) extendRun(b *block, r *Record) {
	o.fed += int64(len(r.Value))
	at := int64(o.builder.Rows())
	if at == 1 {
		b.table.filled.passed.Store(true)
	}
	if n := len(o.runs); n > 0 && !o.apart && o.runs[n-1].Partition == b.partition && o.runs[n-1].Session == b.session {
		run := &o.runs[n-1]
		run.Last, run.To = r.Offset, at
		run.oldest, run.newest = older(run.oldest, r.Timestamp), max(run.newest, r.Timestamp)
		return
	}
	o.runs = append(o.runs, Run{b.partition, b.session, r.Offset, r.Offset, at - 1, at, r.Timestamp, r.Timestamp, b.since.UnixNano()})
	o.apart = false
}

// chunkFull reports whether the chunk has enough rows or bytes. Bytes are counted column by column: not for each row, but before
// many large records can gather.
func (l *lane) chunkFull(o *openChunk, r *Record) bool {
	at := o.builder.Rows()
	return at >= chunkRows || (at%16 == 0 || len(r.Value) > leastChunk/64) && o.builder.Bytes() >= l.chunk.Load()
}

// older is the lesser of two timestamps; one that is not positive is none.
func older(a, b int64) int64 {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}

// add appends a record. What a decoder neither does nor explains, a panic included, is a failure of our own.
func add(to Builder, p Partition, r *Record) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Recovered(decoding, v)
		}
	}()
	if err = to.Add(p, r); err == nil || errors.Is(err, ErrChunkFull) {
		return err
	}
	return Local(decoding, err)
}

// builderOf returns a builder for the rows of a block.
func builderOf(b *block) (builder Builder, err error) {
	defer func() {
		if v := recover(); v != nil {
			builder, err = nil, Recovered(decoding, v)
		}
	}()
	return b.table.decoder.Builder(b.schema)
}

// sealed seals the chunk of a builder. A panic is a failure of our own, as it is for add.
func sealed(of Builder) (c Chunk, err error) {
	defer func() {
		if v := recover(); v != nil {
			c, err = Chunk{}, Recovered(decoding, v)
		}
	}()
	c.Rows, c.held = of.Seal(), of.Sealed()
	if b, ok := of.(Identifier); ok {
		c.Entries = b.Entries()
		c.entries = int64(len(c.Entries)) * (idempotency.EntryBytes + idempotency.JudgeBytes)
	}
	return c, nil
}

// probe makes a chunk of one record and drops it. Its error says whether the record fails by itself.
func probe(b *block, r *Record) error {
	if !b.table.nulls && r.Value == nil {
		return nil // no row
	}
	builder, err := builderOf(b)
	if err != nil {
		return err
	}
	if err = add(builder, b.partition, r); err != nil {
		return err
	}
	c, err := sealed(builder)
	if err == nil {
		c.Rows.Release()
	}
	return err
}

// fail gives up what is open for a table: a builder that failed may hold anything, and the rows in it are of records that
// are gone. The cut that comes will be dropped, and all of it is read again.
func (l *lane) fail(b *block, r *Record, o *openChunk, err error) {
	o.fail(b.table, failure{partition: b.partition, session: b.session, offset: r.Offset, err: err, alone: l.othersPass(b, r), runs: o.runs})
}

func (o *openChunk) fail(t *tableState, f failure) {
	o.failed = &f
	o.builder, o.runs = nil, nil
	t.filled.failed.Add(1)
}

// othersPass tells whether records beside the one that failed do become rows: others of its block if it has any, else any
// record since the start of the process.
func (l *lane) othersPass(b *block, failed *Record) bool {
	const most = 100 // each one that fails costs a builder
	failures := 0
	for i := range b.records {
		r := &b.records[i]
		if r == failed || r.Value == nil || failures == most {
			continue
		}
		switch err := probe(b, r); {
		case err == nil:
			return true
		case isLocal(err):
			failures++
		}
	}
	return failures == 0 && b.table.filled.passed.Load()
}

// size is what the lane holds of the batch: rows, and bytes of Arrow buffers.
func (o *openChunk) size() (rows, bytes int64) {
	rows, bytes = o.sealedRows, o.sealedBytes
	if o.builder != nil {
		rows += int64(o.builder.Rows())
		bytes += o.builder.Bytes()
	}
	return rows, bytes
}

// settle has the batch pool hold what the lane really has for a table, in place of what was reserved.
func (l *lane) settle(t *tableState, o *openChunk, reserved int64) {
	held := o.sealedHeld + o.letters
	if o.builder != nil {
		held += o.builder.Held()
	}
	change := held - o.counted.held
	o.counted.held = held
	t.filled.held.Add(change - reserved)
	l.batch.Adjust(change - reserved)
}

// seal closes the chunk that fills. Where the builder panics, the rows are lost, and with them the batch: see fail.
func (l *lane) seal(t *tableState, o *openChunk) {
	if o.builder == nil || o.builder.Rows() == 0 {
		return
	}
	rows, bytes := int64(o.builder.Rows()), o.builder.Bytes()
	c, err := sealed(o.builder)
	if err != nil {
		first := &o.runs[0] // which row is at fault is found later
		o.fail(t, failure{partition: first.Partition, session: first.Session, offset: first.First, err: err, runs: o.runs, sealing: true})
		return
	}
	c.Schema, c.Runs = o.schema, o.runs
	o.sealedRows += rows
	o.sealedBytes += bytes
	o.chunks = append(o.chunks, c)
	o.sealedHeld += c.held + c.entries
	t.filled.ratio.learn(c.held+c.entries, o.fed)
	o.runs, o.fed = nil, 0
}

// close ends this lane's part of a batch, which has so many bytes of the batch pool: for a cut, or to drop it.
func (l *lane) close(t *tableState, cut bool) (p part, held int64) {
	o := l.open[t]
	if o == nil {
		return part{lane: l.id}, 0
	}
	l.seal(t, o)
	l.settle(t, o, 0)
	p, held = part{l.id, o.chunks, o.candidates, o.dropped, o.ignored, o.failed}, o.sealedHeld+o.letters
	t.filled.held.Add(-held)
	o.counted.held, o.sealedHeld, o.letters = o.counted.held-held, 0, 0
	if o.failed != nil {
		t.filled.failed.Add(-1)
	}
	// A builder without rows need not wait for more. One that keeps buffers of a bad record must not: no commit would free them, and
	// a claim that needs the whole pool would wait forever.
	if p.chunks == nil || o.failed != nil || o.counted.held > 0 {
		l.free(t, o)
	}
	o.count(t, -o.counted.rows, -o.counted.bytes, -o.counted.bad)
	o.chunks, o.candidates, o.sealedRows, o.sealedBytes = nil, nil, 0, 0
	o.dropped, o.ignored = nil, ignoredNames{}
	for _, t := range o.trails {
		if cut {
			t.close()
		} else {
			t.open.clear()
		}
	}
	o.trails = nil
	clear(o.lastDropped)
	clear(o.stopped)
	return p, held
}

// blockPool lends blocks, so that a record costs no allocation on its way.
type blockPool struct{ free chan *block }

func newBlockPool(n int) *blockPool { return &blockPool{make(chan *block, n)} }

// get returns an empty block for records of an answer.
func (p *blockPool) get(a *answer) (b *block) {
	a.share()
	select {
	case b = <-p.free:
	default:
		b = &block{records: make([]Record, 0, blockRecords), taken: make([]uint16, 0, blockRecords)}
	}
	b.answer = a
	return b
}

// put takes back a block, of which nobody touches a record any more.
func (p *blockPool) put(b *block) {
	b.answer.leave()
	clear(b.records) // they pin the fetch's memory
	*b = block{records: b.records[:0], taken: b.taken[:0]}
	select {
	case p.free <- b:
	default:
	}
}
