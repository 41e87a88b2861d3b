package recordbatch

import (
	"fmt"

	"sluice/reliability/hold"
)

// Extent is the place of a record batch according to its header. The header itself may be damaged.
type Extent struct {
	Base, Last int64 // offsets of the batch, both included
	Size       int   // the size in bytes, including the header
}

// ExtentOf returns the place of the first batch in raw. A broker has returned raw for the offset at, so the place
// always contains at. The error is a [hold.Error] with hold.CorruptBatch if the header is unusable.
//
// A header in an old format has only the last offset; then Base is at most the requested offset. If raw also has the
// start of the next batch, Last is smaller than the first offset of that batch.
func ExtentOf(raw []byte, at int64) (Extent, error) {
	if len(raw) <= 16 {
		return Extent{}, corrupt(at, fmt.Sprintf("the broker has %d bytes of it", len(raw)), nil)
	}
	base := int64(be.Uint64(raw)) //nolint:gosec // G115: validated before it is used
	e := Extent{Base: base, Last: base, Size: i32(raw[8:]) + 12}
	if raw[16] >= 2 && len(raw) >= headerLen {
		e.Last += int64(i32(raw[23:]))
	}
	if base < 0 || e.Last < base || e.Last == 1<<63-1 || e.Size <= 16 {
		return Extent{}, corrupt(at, fmt.Sprintf("its header is damaged (base offset %d, last offset %d, %d bytes)", base, e.Last, e.Size), nil)
	}
	if raw[16] < 2 { // in old formats, the offset of a compressed batch is that of its last record
		e.Base = min(e.Base, at)
	}
	e.Last = max(e.Last, at)
	if next := e.Size + 16; len(raw) > next && raw[next] == 2 {
		if after := int64(be.Uint64(raw[e.Size:])); after > max(at, e.Base) { //nolint:gosec // G115: compared, not trusted
			e.Last = min(e.Last, after-1)
		}
	}
	return e, nil
}

// Readable returns nil if the records of the first batch of raw can be read within limits and memory, else a
// [hold.Error] with the reason.
func Readable(raw []byte, e Extent, limits Limits, m Memory) error {
	if e.Size > len(raw) {
		return hold.New(hold.Oversize, fmt.Sprintf("record batch at offset %d has %d bytes", e.Base, e.Size), nil)
	}
	b, err := NewOpener(limits, m).Open(raw[:e.Size], e.Base, nil)
	if b.Release(); err != nil && reasonless(err) {
		return hold.New(hold.Oversize, fmt.Sprintf("record batch at offset %d", e.Base), err)
	}
	return err
}

// NewestOf returns the largest timestamp in the first batch of raw, as its header says, in milliseconds since 1970. ok
// is false if the header has none; batches of formats before Kafka 0.11 never have one.
func NewestOf(raw []byte) (ms int64, ok bool) {
	if len(raw) < headerLen || raw[16] != 2 {
		return 0, false
	}
	ms = int64(be.Uint64(raw[35:])) //nolint:gosec // G115: validated before it is used
	return ms, ms >= 0
}
