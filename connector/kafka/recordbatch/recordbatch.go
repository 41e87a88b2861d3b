// Package recordbatch reads Kafka's record batches (magic 2) as a consumer with isolation read_committed.
//
// It works in two stages. [Opener.Open] runs where the bytes arrive: it verifies checksums and the form of every
// record, drops control batches and aborted transactions, decompresses within limits, and computes the next offset.
// [Batches.Read] runs where the records are used and only parses. Both stages are pure: no network, no clock, no
// goroutine.
//
// The format is described at https://kafka.apache.org/documentation/#recordbatch.
package recordbatch

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"sluice/connector"
	"sluice/reliability/hold"
)

const (
	headerLen   = 61
	crcFrom     = 21 // the checksum covers the bytes of a batch from its attributes on
	attrCodec   = 0x07
	attrLogTime = 0x08
	attrTxn     = 0x10
	attrControl = 0x20

	// maxHeaders is the largest number of headers of a record. There must be a limit, because an empty header has only
	// two bytes on the wire but forty in memory.
	maxHeaders = 1 << 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Aborted is an aborted transaction in the range of a response: its producer id and its first offset.
type Aborted struct{ Producer, First int64 }

// Opener opens the record batches of responses. It reuses its decompressors and is not safe for concurrent use.
type Opener struct {
	limits Limits
	memory Memory
	codecs codecs
	dead   map[int64]struct{} // the producers whose transaction at this point of the log was aborted
	// growth is the factor by which the last response grew when it was decompressed, in sixteenths, plus an eighth to
	// be safe. It serves to estimate the memory for the next response.
	growth int
}

// NewOpener returns an Opener that takes its memory from m, or from the heap if m is nil. Zero limits take their
// defaults.
func NewOpener(limits Limits, m Memory) *Opener {
	if m == nil {
		m = heap{}
	}
	return &Opener{limits: limits.WithDefaults(), memory: m, dead: map[int64]struct{}{}, growth: 4 * 16}
}

// Expect estimates the decompressed size of n bytes of a response.
func (o *Opener) Expect(n int) int { return n * o.growth / 16 }

// Batches are the opened batches of one response. They implement [connector.Records]. They and their records own
// their memory until Release; none of it aliases the response.
type Batches struct {
	// Next is the offset after the last consumed batch. Control, aborted and empty batches count as consumed.
	Next int64
	// Epoch is the leader epoch of all consumed batches, -1 if there was none.
	Epoch int32
	// Count is the number of committed records, Bytes the memory that they hold.
	Count int
	Bytes int
	// Truncated is the full size of the last batch if the response has only a part of it. It is 0 if the response ends
	// with a whole batch, or too early to show the size of the next one. If Next did not advance, the next request must
	// have room for Truncated bytes.
	Truncated int

	memory  Memory
	chunks  [][]byte
	batches []batch // the batches that have committed records
	at      int     // the position of the next record in the first of them
	left    int     // how many of its records were not read yet
	slab    []connector.Header
	names   []string
}

// batch is a batch that was checked.
type batch struct {
	data    []byte // the decompressed records
	base    int64
	first   int64 // the first offset to deliver; the batch may begin earlier, because brokers send whole batches
	time    int64
	count   int
	logTime bool // true if the broker set one timestamp, time, for all records
}

// Open validates and decompresses the whole batches of raw at or after the offset from. raw may end inside a batch,
// which is left for the next fetch. aborted is sorted in place. Open stops before a batch of another leader epoch: a
// caller that consumes only these batches must not report the epoch of later ones (KIP-320).
//
// The error is a [hold.Error] about the batch at Next: reason corrupt_batch for a bad checksum, an old magic, a codec
// that fails or malformed records; oversize for one beyond the limits. Open then returns the batches before it and no
// record of the bad one. The error is [ErrNoRoom], [ErrNeverRoom] or another error of the Memory if it has no buffer
// for the first batch. If only a later batch has no buffer, Open returns the batches before it without an error.
func (o *Opener) Open(raw []byte, from int64, aborted []Aborted) (*Batches, error) {
	b := &Batches{Next: from, Epoch: -1, memory: o.memory}
	clear(o.dead)
	// Brokers sort aborted transactions by the offset of their abort marker.
	slices.SortFunc(aborted, func(x, y Aborted) int { return cmp.Compare(x.First, y.First) })
	a := arena{memory: o.memory, growth: o.growth}
	var err error
	opened := 0
	for err == nil && len(raw) > 16 && a.bytes < o.limits.Response {
		var h header
		if h, err = parseHeader(raw, b.Next); err != nil || h.size > len(raw) || b.Epoch >= 0 && h.epoch != b.Epoch {
			break
		}
		for len(aborted) > 0 && aborted[0].First <= h.last {
			o.dead[aborted[0].Producer] = struct{}{}
			aborted = aborted[1:]
		}
		a.likely, a.opened = min(o.Expect(len(raw)), o.limits.Response), b.Count > 0
		before := b.Count
		if err = o.open(raw[:h.size:h.size], &h, b, &a); err != nil {
			break
		}
		if b.Count > before {
			opened += h.size
		}
		b.Next, b.Epoch = max(b.Next, h.last+1), h.epoch
		raw = raw[h.size:]
	}
	if len(raw) >= 12 {
		if size := i32(raw[8:]) + 12; size > len(raw) {
			b.Truncated = size
		}
	}
	if err != nil && b.Next > from && reasonless(err) {
		err = nil
	}
	a.close()
	b.Bytes, b.chunks = a.bytes, a.chunks
	if opened > 0 {
		// This is 18/16 of the real growth, so that the next response still fits if it grows a little more.
		o.growth = min(max(a.used*18/opened, 16), 256*16)
	}
	return b, err
}

// Forget drops references to the response that was opened last.
func (o *Opener) Forget() { o.codecs.src.Reset(nil) }

// reasonless reports whether an error is not a hold: it means that memory was missing, and says nothing about the data.
func reasonless(err error) bool {
	var held *hold.Error
	return !errors.As(err, &held)
}

// open adds the committed records of one whole batch to b. It skips control batches, batches of aborted transactions
// and empty ones. A panic becomes an error about this batch, so that it holds one partition and does not end the
// process.
func (o *Opener) open(raw []byte, h *header, b *Batches, a *arena) (err error) {
	before := a.mark()
	defer func() {
		if v := recover(); v != nil {
			a.back(before)
			o.codecs = codecs{} // a decompressor that panicked may be in any state, so all are replaced
			err = corrupt(h.base, "opening it panicked", connector.Recovered("codec "+codecNames[h.attrs&attrCodec], v))
		}
	}()
	if crc32.Checksum(raw[crcFrom:], castagnoli) != h.crc {
		return corrupt(h.base, "its checksum does not fit", nil)
	}
	_, dead := o.dead[h.producer]
	switch {
	case h.attrs&attrControl != 0:
		if !dead {
			return nil
		}
		abort, err := o.isAbort(raw, h, a)
		if err != nil {
			return err
		}
		if abort {
			delete(o.dead, h.producer)
		}
		return nil
	case h.last < b.Next, dead && h.attrs&attrTxn != 0:
		return nil
	case h.count == 0 && len(raw) == headerLen: // compaction removed all records, and the header still has the offsets
		return nil
	}
	data, err := o.decompress(raw, h, a)
	n := 0
	if err == nil {
		n, err = check(data, h, b.Next)
	}
	if n == 0 || err != nil {
		a.back(before)
		return err
	}
	b.batches = append(b.batches, batch{
		data: data, base: h.base, first: b.Next, time: h.time(), count: h.count, logTime: h.attrs&attrLogTime != 0,
	})
	b.Count += n
	return nil
}

func (o *Opener) decompress(raw []byte, h *header, a *arena) ([]byte, error) {
	codec, src := int(h.attrs&attrCodec), raw[headerLen:]
	limit := o.limits.batch(len(src))
	data, err := o.codecs.decompress(codec, src, a, limit)
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, errTooLarge):
		return nil, hold.New(hold.Oversize,
			fmt.Sprintf("record batch at offset %d", h.base), describe(codec, len(src), limit, err))
	case a.failed != nil:
		return nil, a.failed
	}
	return nil, corrupt(h.base, "it does not decompress", describe(codec, len(src), limit, err))
}

// check parses all records of a batch, so that no record of a damaged batch is delivered. It returns the number of
// records whose offset is at least from.
func check(data []byte, h *header, from int64) (n int, err error) {
	var f fields
	p, last := 0, int64(-1)
	for i := range h.count {
		if !parse(data, p, &f) || f.count > 0 && !walkHeaders(&f) {
			return 0, corrupt(h.base, fmt.Sprintf("record %d of %d is malformed", i+1, h.count), nil)
		}
		if f.offset <= last || f.offset > h.last-h.base {
			return 0, corrupt(h.base, fmt.Sprintf("record %d of %d has offset %+d after %+d, in a batch of %d offsets",
				i+1, h.count, f.offset, last, h.last-h.base+1), nil)
		}
		if f.count > maxHeaders {
			return 0, hold.New(hold.Oversize,
				fmt.Sprintf("record at offset %d has %d headers, limit %d", h.base+f.offset, f.count, maxHeaders), nil)
		}
		if last = f.offset; h.base+last >= from {
			n++
		}
		p = f.end
	}
	if p != len(data) {
		return 0, corrupt(h.base, fmt.Sprintf("%d bytes follow its last record", len(data)-p), nil)
	}
	return n, nil
}

// isAbort reports whether a control record is an abort marker. Its key is a version and a type; type 0 is abort.
func (o *Opener) isAbort(raw []byte, h *header, a *arena) (bool, error) {
	defer a.back(a.mark())
	data, err := o.decompress(raw, h, a)
	if err != nil {
		return false, err
	}
	var f fields
	if !parse(data, 0, &f) || len(f.key) < 4 {
		return false, corrupt(h.base, "its control record is malformed", nil)
	}
	return be.Uint16(f.key[2:]) == 0, nil
}

// Read parses the next records into block. It implements [connector.Records] and returns no error but io.EOF, because
// Open has validated every record.
func (b *Batches) Read(block []connector.Record) (n int, err error) {
	b.slab = b.slab[len(b.slab):]
	headers := 0
	var f fields
	for n < len(block) && headers < maxHeaders {
		if len(b.batches) == 0 {
			break
		}
		cur := &b.batches[0]
		if b.at == 0 {
			b.left = cur.count
		}
		for b.left > 0 && n < len(block) && headers < maxHeaders {
			if !parse(cur.data, b.at, &f) {
				return n, corrupt(cur.base, "it changed after it was checked", nil)
			}
			b.at, b.left = f.end, b.left-1
			offset := cur.base + f.offset
			if offset < cur.first {
				continue
			}
			r := &block[n]
			r.Offset, r.Key, r.Value, r.Headers = offset, f.key, f.value, nil
			if r.Timestamp, r.SetBy = cur.time, connector.LogAppendTime; !cur.logTime {
				r.Timestamp, r.SetBy = cur.time+f.time, connector.CreateTime
			}
			if f.count > 0 {
				r.Headers = b.headers(&f)
				headers += f.count
			}
			n++
		}
		if b.left == 0 {
			b.batches, b.at = b.batches[1:], 0
		}
	}
	if n == 0 && len(block) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Release implements [connector.Records].
func (b *Batches) Release() {
	for _, c := range b.chunks {
		b.memory.Return(c)
	}
	b.chunks, b.batches = nil, nil
}

// headers decodes the headers of a record into a slab that many records share.
func (b *Batches) headers(f *fields) []connector.Header {
	const slab = 128
	if cap(b.slab)-len(b.slab) < f.count {
		b.slab = make([]connector.Header, 0, max(f.count, slab))
	}
	from := len(b.slab)
	b.slab, b.names = appendHeaders(b.slab, f, b.names)
	return b.slab[from:len(b.slab):len(b.slab)]
}

// corrupt returns the hold for a batch that is damaged. If the bytes were damaged only in transit, fetching the batch
// again ends the hold.
func corrupt(base int64, what string, cause error) error {
	return hold.New(hold.CorruptBatch, fmt.Sprintf("record batch at offset %d: %s", base, what), cause)
}
