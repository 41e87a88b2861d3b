package lane

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
	"sluice/reliability/pulse"
)

const decoding = "decode"

const (
	// chunkRows and chunkBytes are the sizes at which a chunk is sealed and becomes one row group. chunkRows is a
	// little below a power of two: offset buffers have one entry more than there are rows, and their capacity is
	// rounded up to a power of two.
	chunkRows  = 65_000
	chunkBytes = 16 << 20
	// largeRecord is the smallest size of a value for which a record can get a chunk of its own.
	largeRecord = 2 << 20
	// QueueLength is how many blocks and barriers the queue of a lane takes. Backpressure bounds the records in them.
	QueueLength = 64
)

// laneWork is an element of a lane's queue: a block, or a barrier that seals or drops the open batch.
type laneWork struct {
	block   *Block
	table   *Table   // the table of a barrier
	barrier *Barrier // takes the part of this lane; if nil, the part is dropped
}

// A Lane decodes on its own goroutine. It makes no decisions and does no I/O: a record that cannot become a row becomes
// a candidate, and a decoder that fails for an unknown cause makes the open batch unusable. All rows of a claim pass
// through one lane, so they keep the order of their offsets.
type Lane struct {
	ID           int
	in           chan laneWork
	progress     chan<- struct{} // gets a value when records were decoded, which wakes the reader
	backpressure *Backpressure
	Blocks       *Blocks
	metrics      *Metrics
	batch        *bytepool.Pool
	chunk        *ChunkLimit
	loops        *pulse.Loops
	records      *RecordLog

	open map[*Table]*openPart
}

// openPart is what one lane has of the open batch of a table: sealed chunks, the open chunk (in builder), and
// candidates.
type openPart struct {
	schema     connector.Schema
	builder    connector.Builder
	builderErr error // the error of making the builder
	runs       []plan.Run
	chunks     []plan.Chunk
	candidates []plan.Candidate
	dropped    []plan.Dropped
	origins    []plan.Origin
	// lastDropped maps a session to the index of its newest element in dropped.
	lastDropped map[uint64]int
	// sealedRows, sealedBytes and sealedAllocated are the sums over chunks.
	sealedRows, sealedBytes, sealedAllocated int64
	letterBytes                              int64       // the bytes reserved for candidates and origins
	recordBytes                              int64       // the sizes of the records in the open chunk
	sessions                                 []*Progress // the sessions that have records in the open batch
	failed                                   *plan.Failure
	ignored                                  plan.IgnoredNames
	breakRun                                 bool // true if the next row must begin a run, because a bad record or an origin is before it
	// stopped has the sessions whose claim must stop at a bad record, because that record cannot become a dead letter.
	// The lane skips the later records of such a session, because Decide would not commit them.
	stopped map[uint64]bool
	// counted is what this lane has added to the totals in the table's OpenBatch, so that it can subtract the same
	// later.
	counted struct{ rows, bytes, bad, allocated int64 }
}

func (o *openPart) count(t *Table, rows, bytes, bad int64) {
	o.counted.rows += rows
	o.counted.bytes += bytes
	o.counted.bad += bad
	t.OpenBatch.Rows.Add(rows)
	t.OpenBatch.Bytes.Add(bytes)
	t.OpenBatch.bad.Add(bad)
}

// openBatch has the totals over all lanes for the open batch of a table. From them the reader decides when to seal the
// batch.
type openBatch struct {
	Rows, Bytes atomic.Int64 // Bytes counts columns and bad records
	bad         atomic.Int64 // the number of bad records
	Queued      atomic.Int64 // the number of records that were enqueued and not decoded yet
	Failed      atomic.Int64 // the number of lanes whose decoder failed; if there is one, the open batch cannot be committed
	passed      atomic.Bool  // true once a record has become a row since the start of the process
	Allocated   atomic.Int64 // bytes of the batch pool that the open batch has, including those of queued blocks
	ratio       ratio
}

// Estimate returns how many bytes of the batch pool a number of rows will probably take; values is the total size of
// their values. The estimate follows the sealed chunks of the table.
func (f *openBatch) Estimate(values, rows int) int64 { return f.ratio.estimate(values, rows) }

// Records returns the number of records in the batch, as rows or as candidates.
func (f *openBatch) Records() int64 { return f.Rows.Load() + f.bad.Load() }

// Config are the parts that a lane works with.
type Config struct {
	ID           int
	Progress     chan<- struct{} // gets a value when records were decoded; must be buffered
	Backpressure *Backpressure
	Blocks       *Blocks
	Metrics      *Metrics
	Batch        *bytepool.Pool
	Chunk        *ChunkLimit
	Records      *RecordLog
	Loops        *pulse.Loops // nil if the loop is not watched
}

// New returns a lane. The caller must start it with Run or drive it with Step.
func New(c Config) *Lane {
	return &Lane{
		ID: c.ID, in: make(chan laneWork, QueueLength), progress: c.Progress, backpressure: c.Backpressure, Blocks: c.Blocks, metrics: c.Metrics,
		batch: c.Batch, chunk: c.Chunk, records: c.Records, loops: c.Loops, open: map[*Table]*openPart{},
	}
}

// Enqueue gives the block to the lane, which then owns it. It returns false, and the caller keeps the block, if the
// queue is full.
func (l *Lane) Enqueue(b *Block) bool {
	select {
	case l.in <- laneWork{block: b}:
		return true
	default:
		return false
	}
}

// SealBatch enqueues a barrier. When the lane reaches it, the lane adds to it what it has made for the table from all
// blocks enqueued before. SealBatch blocks while the queue is full.
func (l *Lane) SealBatch(t *Table, barrier *Barrier) { l.in <- laneWork{table: t, barrier: barrier} }

// Discard enqueues a command to the lane to drop what it has made for the table from all blocks enqueued before.
func (l *Lane) Discard(t *Table) { l.in <- laneWork{table: t} }

// Sweep releases the blocks left in the queue. Call it only after Run has returned.
func (l *Lane) Sweep() {
	for len(l.in) > 0 {
		if w := <-l.in; w.block != nil {
			l.batch.Release(w.block.Reserved)
			l.Blocks.Put(w.block)
		}
	}
}

// Run decodes until ctx ends. Then it releases the lane's parts of all open batches.
func (l *Lane) Run(ctx context.Context) {
	loop := l.loops.Begin("lane " + strconv.Itoa(l.ID))
	defer loop.End()
	defer l.dropAll()
	for {
		loop.Rest()
		select {
		case w := <-l.in:
			loop.Work()
			l.do(ctx, w)
		case <-ctx.Done():
			return
		}
	}
}

// Step processes the next element of the queue without waiting. It returns false if the queue is empty.
func (l *Lane) Step(ctx context.Context) bool {
	select {
	case w := <-l.in:
		l.do(ctx, w)
		return true
	default:
		return false
	}
}

func (l *Lane) do(ctx context.Context, w laneWork) {
	switch {
	case w.block != nil:
		l.decode(ctx, w.block)
	case w.barrier != nil:
		p, allocated := l.close(w.table, true)
		w.barrier.Allocated.Add(allocated)
		w.barrier.Parts <- p
		w.barrier.Passed.Add(1)
		l.wakeReader()
	default:
		l.drop(w.table)
	}
}

// dropAll releases what this lane has of the open batches of all tables.
func (l *Lane) dropAll() {
	for t := range l.open {
		l.drop(t)
	}
}

// drop releases what this lane has of the open batch of a table, and wakes the reader.
func (l *Lane) drop(t *Table) {
	p, _ := l.close(t, false)
	p.Release(l.batch)
	if o := l.open[t]; o != nil {
		l.freeBuilder(t, o)
	}
	l.wakeReader()
}

// freeBuilder removes the builder of a table from the lane, and returns the bytes of its buffers to the batch pool.
func (l *Lane) freeBuilder(t *Table, o *openPart) {
	delete(l.open, t)
	t.OpenBatch.Allocated.Add(-o.counted.allocated)
	l.batch.Adjust(-o.counted.allocated)
	o.counted.allocated = 0
}

func (l *Lane) decode(ctx context.Context, b *Block) {
	o := l.open[b.Table]
	if o == nil {
		o = &openPart{stopped: map[uint64]bool{}, ignored: plan.IgnoredNames{}}
		l.open[b.Table] = o
	}
	if o.schema != b.Schema {
		l.sealChunk(b.Table, o)
		o.schema = b.Schema
		o.builder, o.builderErr = builderOf(b)
	}
	rows, bytes := o.size()
	bad := len(o.candidates)
	logging := l.records.enabled(ctx)
	known, suspects := b.Table.Verdicts.For(b.Partition), b.Table.Verdicts.Suspects(b.Partition)
	for i := range b.Records {
		if o.stopped[b.Session] || o.failed != nil {
			break
		}
		r := &b.Records[i]
		if _, judged := known[r.Offset]; !judged && suspects.Has(r.Offset) {
			if err := probe(b, r); connector.IsLocal(err) {
				l.fail(b, r, o, err)
				break
			}
		}
		if became := l.row(b, r, o, known); logging && became != "" {
			l.records.log(ctx, b.Partition, r, became)
		}
	}
	l.adjustReservation(b.Table, o, b.Reserved)
	if o.builder != nil {
		rowsNow, bytesNow := o.size()
		o.count(b.Table, rowsNow-rows, bytesNow-bytes, 0)
		ignored := o.builder.Ignored()
		l.metrics.ignored.Add(float64(ignored.Fields))
		o.ignored.Add(b.Partition.Topic, ignored.Names, ignored.More)
		rows = rowsNow - rows
	}
	if n := len(b.Records); n > 0 && o.failed == nil && b.Progress.done(b, b.Records[n-1].Offset+1, rows > 0 || len(o.candidates) > bad) {
		o.sessions = append(o.sessions, b.Progress)
	}
	b.Table.OpenBatch.Queued.Add(-int64(len(b.Records)))
	l.backpressure.Release(b.Taken)
	l.Blocks.Put(b)
	l.wakeReader()
}

// wakeReader wakes the reader, which then checks what it can enqueue.
func (l *Lane) wakeReader() { Wake(l.progress) }

// Wake sends a value to the channel without blocking. If its buffer is full, the receiver is awake already.
func Wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// row makes a row of a record, keeps the record as a candidate, or leaves it out. known has what earlier readings have
// found out about records of the partition, by offset. The result says what became of the record; it is "" if the batch
// has failed and the record will be read again.
func (l *Lane) row(b *Block, r *connector.Record, o *openPart, known map[int64]plan.Verdict) (became string) {
	replayed := len(r.Headers) > 0 && b.Origins != nil && o.keepOrigin(b, r)
	if len(r.Headers) > 0 && b.Health != nil && b.Health.drops(b.Partition, r) {
		o.drop(b.Partition, b.Session, r.Offset)
		return recordIsHealthRecord
	}
	err := b.Refuse.Of(r)
	if err == nil && b.Refuse.LeaveOut(r) {
		l.metrics.tombstones.Inc()
		return recordIsTombstone
	}
	// A record that would fill most of a chunk gets a chunk of its own, because encoding a chunk takes several times its
	// size in memory.
	alone := int64(r.Size()) > max(l.chunk.Load()/4, largeRecord)
	if alone {
		l.sealChunk(b.Table, o)
	}
	v, judged := known[r.Offset]
	if err == nil {
		err = v.Err
	}
	if err == nil {
		err = l.append(b, r, o)
	}
	switch {
	case o.failed != nil:
		return "" // the chunk before this record could not be sealed, so its records and this one are read again
	case connector.IsLocal(err):
		l.fail(b, r, o, err)
		return ""
	case err != nil:
		c, pass := NewCandidate(b, r, err)
		if judged {
			c.Retries, c.First, c.Last = v.Retries, v.First, v.Last
		}
		o.keepCandidate(b, &c, pass)
		return recordIsBad
	}
	o.extendRun(b, r)
	o.breakRun = replayed
	if l.chunkFull(o, r) || alone {
		l.sealChunk(b.Table, o)
	}
	return recordIsRow
}

// append appends one record to the open chunk or, if that is full, to the next one.
func (l *Lane) append(b *Block, r *connector.Record, o *openPart) error {
	if o.builderErr != nil || o.failed != nil {
		return o.builderErr
	}
	err := add(o.builder, b.Partition, r)
	if !errors.Is(err, connector.ErrChunkFull) || o.builder.Rows() == 0 {
		return err
	}
	if l.sealChunk(b.Table, o); o.failed != nil {
		return err
	}
	return add(o.builder, b.Partition, r)
}

// keepCandidate adds a candidate to the lane's part. pass is true if the claim continues after the record, false if the
// claim stops there.
func (o *openPart) keepCandidate(b *Block, c *plan.Candidate, pass bool) {
	o.candidates, o.letterBytes = append(o.candidates, *c), o.letterBytes+c.Allocated
	o.stopped[b.Session], o.breakRun = !pass, true
	if !pass {
		b.Progress.stop(c.Offset)
	}
	o.count(b.Table, 0, c.Allocated, 1)
}

// extendRun counts the newest row in the current run. After a bad record, or if the row comes from another session or
// claim than the row before, it begins a new run.
func (o *openPart) extendRun(b *Block, r *connector.Record) {
	o.recordBytes += int64(r.Size())
	at := int64(o.builder.Rows())
	if at == 1 {
		b.Table.OpenBatch.passed.Store(true)
	}
	if n := len(o.runs); n > 0 && !o.breakRun && o.runs[n-1].Partition == b.Partition && o.runs[n-1].Session == b.Session {
		run := &o.runs[n-1]
		run.Last, run.To = r.Offset, at
		run.Oldest, run.Newest = plan.Earliest(run.Oldest, r.Timestamp), max(run.Newest, r.Timestamp)
		return
	}
	o.runs = append(o.runs, plan.Run{Partition: b.Partition, Session: b.Session, First: r.Offset, Last: r.Offset, From: at - 1, To: at, Oldest: r.Timestamp, Newest: r.Timestamp, Enqueued: b.Since.UnixNano()})
	o.breakRun = false
}

// chunkFull reports whether the chunk must be sealed: it has enough rows or bytes. Counting its bytes is slow with many
// columns, so chunkFull does it only after every 16th row and after large records.
func (l *Lane) chunkFull(o *openPart, r *connector.Record) bool {
	at := o.builder.Rows()
	return at >= chunkRows || (at%16 == 0 || r.Size() > minChunk/64) && o.builder.Bytes() >= l.chunk.Load()
}

// add appends a record. A panic of the decoder becomes a [connector.LocalError], and so does each error that
// [connector.Local] wraps.
func add(to connector.Builder, p connector.Partition, r *connector.Record) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = connector.Recovered(decoding, v)
		}
	}()
	if err = to.Add(p, r); err == nil || errors.Is(err, connector.ErrChunkFull) {
		return err
	}
	return connector.Local(decoding, err) // a Poison error stays as it is
}

// builderOf returns a builder for the rows of a block. A panic becomes a [connector.LocalError].
func builderOf(b *Block) (builder connector.Builder, err error) {
	defer func() {
		if v := recover(); v != nil {
			builder, err = nil, connector.Recovered(decoding, v)
		}
	}()
	return b.Table.Decoder.Builder(b.Schema)
}

// sealBuilder seals the chunk of a builder. A panic becomes a [connector.LocalError].
func sealBuilder(of connector.Builder) (c plan.Chunk, err error) {
	defer func() {
		if v := recover(); v != nil {
			c, err = plan.Chunk{}, connector.Recovered(decoding, v)
		}
	}()
	c.Rows, c.Allocated = of.Seal(), of.Sealed()
	if b, ok := of.(connector.IdentityBuilder); ok {
		c.Entries = b.Entries()
		c.EntryBytes = int64(len(c.Entries)) * (idempotency.EntryBytes + idempotency.JudgeBytes)
	}
	return c, nil
}

// probe tests whether a record can become a row: it decodes the record into a chunk of its own, which it drops. It
// returns nil if that works, or if the table leaves the record out.
func probe(b *Block, r *connector.Record) error {
	if b.Refuse.LeaveOut(r) {
		return nil // the record is left out
	}
	builder, err := builderOf(b)
	if err != nil {
		return err
	}
	if err = add(builder, b.Partition, r); err != nil {
		return err
	}
	c, err := sealBuilder(builder)
	if err == nil {
		c.Rows.Release()
	}
	return err
}

// fail makes the open batch of a table unusable after a decoder failed. The builder may be corrupt, and the records of
// its rows are no longer in memory. So the writer drops the batch once it is sealed, and all of its records are read
// again.
func (l *Lane) fail(b *Block, r *connector.Record, o *openPart, err error) {
	o.fail(b.Table, plan.Failure{Partition: b.Partition, Session: b.Session, Offset: r.Offset, Err: err, Alone: l.othersPass(b, r), Runs: o.runs})
}

func (o *openPart) fail(t *Table, f plan.Failure) {
	o.failed = &f
	o.builder, o.runs = nil, nil
	t.OpenBatch.Failed.Add(1)
}

// othersPass reports whether only this record is at fault, and not the decoder. It decodes other records of the block
// one by one: it returns true once one of them becomes a row, and false if some fail with a [connector.LocalError] and
// none passes. If neither happens, it returns whether any record of the table has become a row since the process
// started.
func (l *Lane) othersPass(b *Block, failed *connector.Record) bool {
	const most = 100 // bounded, because each probe that fails costs a builder
	failures := 0
	for i := range b.Records {
		r := &b.Records[i]
		if r == failed || r.Value == nil || failures == most {
			continue
		}
		switch err := probe(b, r); {
		case err == nil:
			return true
		case connector.IsLocal(err):
			failures++
		}
	}
	return failures == 0 && b.Table.OpenBatch.passed.Load()
}

// size returns the rows that the lane has for the open batch, and the bytes of their Arrow buffers.
func (o *openPart) size() (rows, bytes int64) {
	rows, bytes = o.sealedRows, o.sealedBytes
	if o.builder != nil {
		rows += int64(o.builder.Rows())
		bytes += o.builder.Bytes()
	}
	return rows, bytes
}

// adjustReservation corrects what the table has in the batch pool: reserved is the estimate for a block, which is
// replaced by the memory that the lane's part really takes now.
func (l *Lane) adjustReservation(t *Table, o *openPart, reserved int64) {
	allocated := o.sealedAllocated + o.letterBytes
	if o.builder != nil {
		allocated += o.builder.Allocated()
	}
	change := allocated - o.counted.allocated
	o.counted.allocated = allocated
	t.OpenBatch.Allocated.Add(change - reserved)
	l.batch.Adjust(change - reserved)
}

// sealChunk seals the open chunk. If that panics, its rows are lost, and the whole batch must be read again: see fail.
func (l *Lane) sealChunk(t *Table, o *openPart) {
	if o.builder == nil || o.builder.Rows() == 0 {
		return
	}
	rows, bytes := int64(o.builder.Rows()), o.builder.Bytes()
	c, err := sealBuilder(o.builder)
	if err != nil {
		first := &o.runs[0] // which row fails is found out later
		o.fail(t, plan.Failure{Partition: first.Partition, Session: first.Session, Offset: first.First, Err: err, Runs: o.runs, Sealing: true})
		return
	}
	c.Schema, c.Runs = o.schema, o.runs
	o.sealedRows += rows
	o.sealedBytes += bytes
	o.chunks = append(o.chunks, c)
	o.sealedAllocated += c.Allocated + c.EntryBytes
	t.OpenBatch.ratio.learn(c.Allocated+c.EntryBytes, o.recordBytes)
	o.runs, o.recordBytes = nil, 0
}

// close ends this lane's part of the open batch, and returns it with its size in the batch pool. commit is true if the
// part belongs to a sealed batch, false if the caller drops it.
func (l *Lane) close(t *Table, commit bool) (p Part, allocated int64) {
	o := l.open[t]
	if o == nil {
		return Part{Lane: l.ID}, 0
	}
	l.sealChunk(t, o)
	l.adjustReservation(t, o, 0)
	p, allocated = Part{l.ID, o.chunks, o.candidates, o.dropped, o.origins, o.ignored, o.failed}, o.sealedAllocated+o.letterBytes
	t.OpenBatch.Allocated.Add(-allocated)
	o.counted.allocated, o.sealedAllocated, o.letterBytes = o.counted.allocated-allocated, 0, 0
	if o.failed != nil {
		t.OpenBatch.Failed.Add(-1)
	}
	// A builder that made no rows in this batch is freed, because the table may get no more rows. A builder with
	// buffers of a bad record is freed, too: no commit would free these bytes, and a claim that needs the whole pool
	// would wait for ever.
	if p.Chunks == nil || o.failed != nil || o.counted.allocated > 0 {
		l.freeBuilder(t, o)
	}
	o.count(t, -o.counted.rows, -o.counted.bytes, -o.counted.bad)
	o.chunks, o.candidates, o.sealedRows, o.sealedBytes = nil, nil, 0, 0
	o.dropped, o.origins, o.ignored = nil, nil, plan.IgnoredNames{}
	for _, session := range o.sessions {
		if commit {
			session.seal()
		} else {
			session.open.clear()
		}
	}
	o.sessions = nil
	clear(o.lastDropped)
	clear(o.stopped)
	return p, allocated
}
