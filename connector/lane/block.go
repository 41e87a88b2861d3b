package lane

import (
	"time"

	"sluice/connector"
)

// BlockRecords is the maximum number of records in a block.
const BlockRecords = 1000

// A Block is up to [BlockRecords] records of one claim on their way to a lane.
type Block struct {
	Result    *FetchResult // has the memory of the records
	Table     *Table
	Schema    connector.Schema
	Partition connector.Partition
	Session   uint64
	Progress  *Progress // the progress of the session
	Refuse    connector.Refusals
	Health    *HealthFilter // the filter of the topic; nil drops nothing
	Origins   *OriginReader // the reader of origins of the topic; nil knows no origins
	Letters   bool          // true if bad records may become dead letters
	Reserved  int64         // the bytes that the block has reserved in the batch pool
	Since     time.Time     // when the block was enqueued
	Oldest    int64         // the smallest timestamp of its records; 0 if none has one
	Records   []connector.Record
	Taken     []uint16 // the backpressure slot of each record
}

// Blocks is a pool of blocks, so that enqueueing records allocates no memory.
type Blocks struct{ free chan *Block }

// NewBlocks returns a pool that keeps up to n unused blocks.
func NewBlocks(n int) *Blocks { return &Blocks{make(chan *Block, n)} }

// Get returns an empty block for records of r and retains r.
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

// Put returns a block to the pool and releases its fetch result. The caller must not use the block or its records
// afterwards.
func (p *Blocks) Put(b *Block) {
	b.Result.Release()
	clear(b.Records) // otherwise the records would keep the memory of the fetch result in use
	*b = Block{Records: b.Records[:0], Taken: b.Taken[:0]}
	select {
	case p.free <- b:
	default:
	}
}
