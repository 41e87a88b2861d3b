package lane

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
	"sluice/reliability/pulse"
)

const decoding = "decode"

const (
	// BlockRecords is how many records a block has at most.
	BlockRecords = 1000
	// A chunk is sealed at these sizes and becomes one row group. A power of two of rows would double the buffers, whose
	// offsets need one more.
	chunkRows  = 65_000
	chunkBytes = 16 << 20
	// A record of this size or more may get a chunk of its own.
	largeRecord = 2 << 20
	// LaneQueue is how many blocks and markers the queue of a lane takes. The valve bounds the records in them.
	LaneQueue = 64
)

// A Block is records of one claim on their way to a lane.
type Block struct {
	Result    *FetchResult // whose memory the records are in
	Table     *Table
	Schema    connector.Schema
	Partition connector.Partition
	Session   uint64
	Progress  *Progress // of the session
	Refuse    connector.Refusals
	Health    *HealthFilter // of the topic; nil drops nothing
	Letters   bool          // bad records may become letters
	Reserved  int64         // of the batch pool, in bytes
	Since     time.Time     // when it was handed over
	Oldest    int64         // the least timestamp of its records, 0 if none has one
	Records   []connector.Record
	Taken     []uint16 // the valve's slot of each record
}

// laneWork is what passes through a lane's queue, in order: a block, or a marker that closes or drops what is open.
type laneWork struct {
	block   *Block
	table   *Table   // of a marker
	barrier *Barrier // where the lane's part goes; nil drops it
}

// A Lane decodes on its own goroutine. It decides nothing and never touches the network: what it cannot decode becomes a
// candidate. The rows of a claim all pass through one lane, so that their order is the order of their offsets.
type Lane struct {
	ID           int
	in           chan laneWork
	progress     chan<- struct{} // tells the reader that room was given back
	backpressure *Backpressure
	Blocks       *Blocks
	metrics      *Metrics
	batch        *bytepool.Pool
	chunk        *ChunkLimit
	loops        *pulse.Loops
	records      *RecordLog

	open map[*Table]*openChunk
}

// openChunk is what a lane holds of the batch that fills for a table.
type openChunk struct {
	schema     connector.Schema
	builder    connector.Builder
	broken     error // why the schema has no builder
	runs       []plan.Run
	chunks     []plan.Chunk
	candidates []plan.Candidate
	dropped    []plan.Dropped
	// lastDropped finds a session's newest in dropped.
	lastDropped map[uint64]int
	// sealedRows, sealedBytes and sealedHeld are those of chunks.
	sealedRows, sealedBytes, sealedAllocated int64
	letters                                  int64       // bytes of candidates
	fed                                      int64       // bytes of values in the chunk that fills
	sessions                                 []*Progress // with something in the batch that fills
	failed                                   *plan.Failure
	ignored                                  plan.IgnoredNames
	apart                                    bool // the next row starts a run: a bad record lies before it
	// stopped are sessions with a bad record that can have no letter: what follows it would be dropped by decide.
	stopped map[uint64]bool
	// counted is this lane's share of the table's filled.
	counted struct{ rows, bytes, bad, held int64 }
}

func (o *openChunk) count(t *Table, rows, bytes, bad int64) {
	o.counted.rows += rows
	o.counted.bytes += bytes
	o.counted.bad += bad
	t.OpenBatch.Rows.Add(rows)
	t.OpenBatch.Bytes.Add(bytes)
	t.OpenBatch.bad.Add(bad)
}

// openBatch is what all lanes hold open for a table. The reader looks at it to know when a batch is due.
type openBatch struct {
	Rows, Bytes atomic.Int64 // bytes of columns, and of bad records
	bad         atomic.Int64
	Queued      atomic.Int64 // records handed over and not looked at yet
	Failed      atomic.Int64 // lanes whose decoder failed: what is open is not usable
	passed      atomic.Bool  // a record became a row, ever
	Allocated   atomic.Int64 // of the batch pool, blocks on their way included
	ratio       ratio
}

// Estimate returns what rows of values of so many bytes will take of the batch pool, as far as chunks of the table have shown.
func (f *openBatch) Estimate(values, rows int) int64 { return f.ratio.estimate(values, rows) }

// Records is how many records the batch has so far, as rows or as candidates.
func (f *openBatch) Records() int64 { return f.Rows.Load() + f.bad.Load() }

// Config is what a lane works with.
type Config struct {
	ID           int
	Progress     chan<- struct{} // gets a value when room was given back
	Backpressure *Backpressure
	Blocks       *Blocks
	Metrics      *Metrics
	Batch        *bytepool.Pool
	Chunk        *ChunkLimit
	Records      *RecordLog
	Loops        *pulse.Loops // nil if nobody looks
}

// New returns a lane. It works once it runs.
func New(c Config) *Lane {
	return &Lane{
		ID: c.ID, in: make(chan laneWork, LaneQueue), progress: c.Progress, backpressure: c.Backpressure, Blocks: c.Blocks, metrics: c.Metrics,
		batch: c.Batch, chunk: c.Chunk, records: c.Records, loops: c.Loops, open: map[*Table]*openChunk{},
	}
}

// Enqueue gives a block to the lane, which owns it from then on. It returns false if the queue is full.
func (l *Lane) Enqueue(b *Block) bool {
	select {
	case l.in <- laneWork{block: b}:
		return true
	default:
		return false
	}
}

// SealBatch sends a marker behind all that is queued: what the lane holds of a table up to there goes to the cut. It waits for the
// lane if the queue is full.
func (l *Lane) SealBatch(t *Table, barrier *Barrier) { l.in <- laneWork{table: t, barrier: barrier} }

// Discard sends a marker behind all that is queued: what the lane holds of a table up to there is dropped.
func (l *Lane) Discard(t *Table) { l.in <- laneWork{table: t} }

// Sweep gives back the blocks that the lane did not come to. It has ended.
func (l *Lane) Sweep() {
	for len(l.in) > 0 {
		if w := <-l.in; w.block != nil {
			l.batch.Release(w.block.Reserved)
			l.Blocks.Put(w.block)
		}
	}
}

// Run works until ctx ends.
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

// Step does the next piece of work in the queue, without waiting for one. It returns false if there is none.
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
		p, held := l.close(w.table, true)
		w.barrier.Allocated.Add(held)
		w.barrier.Parts <- p
		w.barrier.Passed.Add(1)
		l.wakeReader()
	default:
		l.drop(w.table)
	}
}

// dropAll releases what is still open at the end.
func (l *Lane) dropAll() {
	for t := range l.open {
		l.drop(t)
	}
}

// drop releases what is open for a table.
func (l *Lane) drop(t *Table) {
	p, _ := l.close(t, false)
	p.Release(l.batch)
	if o := l.open[t]; o != nil {
		l.free(t, o)
	}
	l.wakeReader()
}

// free gives up a table's builder, with the buffers that are left in it.
func (l *Lane) free(t *Table, o *openChunk) {
	delete(l.open, t)
	t.OpenBatch.Allocated.Add(-o.counted.held)
	l.batch.Adjust(-o.counted.held)
	o.counted.held = 0
}

func (l *Lane) decode(ctx context.Context, b *Block) {
	o := l.open[b.Table]
	if o == nil {
		o = &openChunk{stopped: map[uint64]bool{}, ignored: plan.IgnoredNames{}}
		l.open[b.Table] = o
	}
	if o.schema != b.Schema {
		l.sealChunk(b.Table, o)
		o.schema = b.Schema
		o.builder, o.broken = builderOf(b)
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
	l.settle(b.Table, o, b.Reserved)
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

// wakeReader has the reader look again.
func (l *Lane) wakeReader() { Wake(l.progress) }

// Wake puts a value into a channel unless there is one.
func Wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// row appends one record, or notes why it cannot be one. known is what was found about records of its partition before.
// The result says what became of the record, "" if it will be read again.
func (l *Lane) row(b *Block, r *connector.Record, o *openChunk, known map[int64]plan.Verdict) (became string) {
	if len(r.Headers) > 0 && b.Health != nil && b.Health.drops(b.Partition, r) {
		o.drop(b.Partition, b.Session, r.Offset)
		return recordIsHealthRecord
	}
	err := b.Refuse.Of(r)
	if err == nil && r.Value == nil && !b.Table.Nulls {
		l.metrics.tombstones.Inc()
		return recordIsTombstone
	}
	// What would be most of a chunk gets one of its own: encoding it takes several times its size.
	alone := int64(len(r.Value)) > max(l.chunk.Load()/4, largeRecord)
	if alone {
		l.sealChunk(b.Table, o)
	}
	v, isKnown := known[r.Offset]
	if err == nil {
		err = v.Err
	}
	if err == nil {
		err = l.append(b, r, o)
	}
	switch {
	case o.failed != nil:
		return "" // the chunk before this record could not be sealed: the record is read again with it
	case connector.IsLocal(err):
		l.fail(b, r, o, err)
		return ""
	case err != nil:
		c, pass := Reject(b, r, err)
		if isKnown {
			c.Retries, c.First, c.Last = v.Retries, v.First, v.Last
		}
		o.reject(b, &c, pass)
		return recordIsBad
	}
	o.extendRun(b, r)
	if l.chunkFull(o, r) || alone {
		l.sealChunk(b.Table, o)
	}
	return recordIsRow
}

// append appends one record to the chunk, or to the next one if it is full.
func (l *Lane) append(b *Block, r *connector.Record, o *openChunk) error {
	if o.broken != nil || o.failed != nil {
		return o.broken
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

// reject keeps a bad record as a candidate. pass says whether the claim goes on behind it.
func (o *openChunk) reject(b *Block, c *plan.Candidate, pass bool) {
	o.candidates, o.letters = append(o.candidates, *c), o.letters+c.Allocated
	o.stopped[b.Session], o.apart = !pass, true
	if !pass {
		b.Progress.stop(c.Offset)
	}
	o.count(b.Table, 0, c.Allocated, 1)
}

// extendRun notes which record the newest row stems from. Runs end at bad records, and where the claim or its session changes.
func (o *openChunk) extendRun(b *Block, r *connector.Record) {
	o.fed += int64(len(r.Value))
	at := int64(o.builder.Rows())
	if at == 1 {
		b.Table.OpenBatch.passed.Store(true)
	}
	if n := len(o.runs); n > 0 && !o.apart && o.runs[n-1].Partition == b.Partition && o.runs[n-1].Session == b.Session {
		run := &o.runs[n-1]
		run.Last, run.To = r.Offset, at
		run.Oldest, run.Newest = plan.Earliest(run.Oldest, r.Timestamp), max(run.Newest, r.Timestamp)
		return
	}
	o.runs = append(o.runs, plan.Run{Partition: b.Partition, Session: b.Session, First: r.Offset, Last: r.Offset, From: at - 1, To: at, Oldest: r.Timestamp, Newest: r.Timestamp, Enqueued: b.Since.UnixNano()})
	o.apart = false
}

// chunkFull reports whether the chunk has enough rows or bytes. Bytes are counted column by column: not for each row, but before
// many large records can gather.
func (l *Lane) chunkFull(o *openChunk, r *connector.Record) bool {
	at := o.builder.Rows()
	return at >= chunkRows || (at%16 == 0 || len(r.Value) > minChunk/64) && o.builder.Bytes() >= l.chunk.Load()
}

// add appends a record. What a decoder neither does nor explains, a panic included, is a failure of our own.
func add(to connector.Builder, p connector.Partition, r *connector.Record) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = connector.Recovered(decoding, v)
		}
	}()
	if err = to.Add(p, r); err == nil || errors.Is(err, connector.ErrChunkFull) {
		return err
	}
	return connector.Local(decoding, err)
}

// builderOf returns a builder for the rows of a block.
func builderOf(b *Block) (builder connector.Builder, err error) {
	defer func() {
		if v := recover(); v != nil {
			builder, err = nil, connector.Recovered(decoding, v)
		}
	}()
	return b.Table.Decoder.Builder(b.Schema)
}

// sealed seals the chunk of a builder. A panic is a failure of our own, as it is for add.
func sealed(of connector.Builder) (c plan.Chunk, err error) {
	defer func() {
		if v := recover(); v != nil {
			c, err = plan.Chunk{}, connector.Recovered(decoding, v)
		}
	}()
	c.Rows, c.Allocated = of.Seal(), of.Sealed()
	if b, ok := of.(connector.Identifier); ok {
		c.Entries = b.Entries()
		c.EntryBytes = int64(len(c.Entries)) * (idempotency.EntryBytes + idempotency.JudgeBytes)
	}
	return c, nil
}

// probe makes a chunk of one record and drops it. Its error says whether the record fails by itself.
func probe(b *Block, r *connector.Record) error {
	if !b.Table.Nulls && r.Value == nil {
		return nil // no row
	}
	builder, err := builderOf(b)
	if err != nil {
		return err
	}
	if err = add(builder, b.Partition, r); err != nil {
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
func (l *Lane) fail(b *Block, r *connector.Record, o *openChunk, err error) {
	o.fail(b.Table, plan.Failure{Partition: b.Partition, Session: b.Session, Offset: r.Offset, Err: err, Alone: l.othersPass(b, r), Runs: o.runs})
}

func (o *openChunk) fail(t *Table, f plan.Failure) {
	o.failed = &f
	o.builder, o.runs = nil, nil
	t.OpenBatch.Failed.Add(1)
}

// othersPass tells whether records beside the one that failed do become rows: others of its block if it has any, else any
// record since the start of the process.
func (l *Lane) othersPass(b *Block, failed *connector.Record) bool {
	const most = 100 // each one that fails costs a builder
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
func (l *Lane) settle(t *Table, o *openChunk, reserved int64) {
	held := o.sealedAllocated + o.letters
	if o.builder != nil {
		held += o.builder.Allocated()
	}
	change := held - o.counted.held
	o.counted.held = held
	t.OpenBatch.Allocated.Add(change - reserved)
	l.batch.Adjust(change - reserved)
}

// sealChunk closes the chunk that fills. Where the builder panics, the rows are lost, and with them the batch: see fail.
func (l *Lane) sealChunk(t *Table, o *openChunk) {
	if o.builder == nil || o.builder.Rows() == 0 {
		return
	}
	rows, bytes := int64(o.builder.Rows()), o.builder.Bytes()
	c, err := sealed(o.builder)
	if err != nil {
		first := &o.runs[0] // which row is at fault is found later
		o.fail(t, plan.Failure{Partition: first.Partition, Session: first.Session, Offset: first.First, Err: err, Runs: o.runs, Sealing: true})
		return
	}
	c.Schema, c.Runs = o.schema, o.runs
	o.sealedRows += rows
	o.sealedBytes += bytes
	o.chunks = append(o.chunks, c)
	o.sealedAllocated += c.Allocated + c.EntryBytes
	t.OpenBatch.ratio.learn(c.Allocated+c.EntryBytes, o.fed)
	o.runs, o.fed = nil, 0
}

// close ends this lane's part of a batch, which has so many bytes of the batch pool: for a cut, or to drop it.
func (l *Lane) close(t *Table, cut bool) (p Part, held int64) {
	o := l.open[t]
	if o == nil {
		return Part{Lane: l.ID}, 0
	}
	l.sealChunk(t, o)
	l.settle(t, o, 0)
	p, held = Part{l.ID, o.chunks, o.candidates, o.dropped, o.ignored, o.failed}, o.sealedAllocated+o.letters
	t.OpenBatch.Allocated.Add(-held)
	o.counted.held, o.sealedAllocated, o.letters = o.counted.held-held, 0, 0
	if o.failed != nil {
		t.OpenBatch.Failed.Add(-1)
	}
	// A builder without rows need not wait for more. One that keeps buffers of a bad record must not: no commit would free them, and
	// a claim that needs the whole pool would wait forever.
	if p.Chunks == nil || o.failed != nil || o.counted.held > 0 {
		l.free(t, o)
	}
	o.count(t, -o.counted.rows, -o.counted.bytes, -o.counted.bad)
	o.chunks, o.candidates, o.sealedRows, o.sealedBytes = nil, nil, 0, 0
	o.dropped, o.ignored = nil, plan.IgnoredNames{}
	for _, t := range o.sessions {
		if cut {
			t.seal()
		} else {
			t.open.clear()
		}
	}
	o.sessions = nil
	clear(o.lastDropped)
	clear(o.stopped)
	return p, held
}

// Blocks lends blocks, so that a record costs no allocation on its way.
type Blocks struct{ free chan *Block }

// NewBlocks returns a pool that keeps n blocks.
func NewBlocks(n int) *Blocks { return &Blocks{make(chan *Block, n)} }

// Get returns an empty block for records of an answer.
func (p *Blocks) Get(r *FetchResult) (b *Block) {
	r.retain()
	select {
	case b = <-p.free:
	default:
		b = &Block{Records: make([]connector.Record, 0, BlockRecords), Taken: make([]uint16, 0, BlockRecords)}
	}
	b.Result = r
	return b
}

// Put takes back a block, of which nobody touches a record any more.
func (p *Blocks) Put(b *Block) {
	b.Result.Release()
	clear(b.Records) // they pin the fetch's memory
	*b = Block{Records: b.Records[:0], Taken: b.Taken[:0]}
	select {
	case p.free <- b:
	default:
	}
}
