package recordbatch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// spec describes a batch for the encoder of these tests.
type spec struct {
	base, producer int64
	attrs          uint16 // attributes, with the codec
	bare           bool   // encode snappy without xerial's framing
	delta          int32  // the last offset delta of the batch; encode raises it to that of the last record
	later          uint32 // added to the leader epoch 7
	records        []testRecord
}

type testRecord struct {
	offset     int64
	time       int64
	key, value []byte
	headers    []testHeader
}

type testHeader struct {
	name  string
	value []byte
}

func appendSpan(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

func (s *spec) encode() []byte {
	var body []byte
	for _, r := range s.records {
		b := []byte{0}
		b = binary.AppendVarint(b, r.time)
		b = binary.AppendVarint(b, r.offset)
		b = appendSpan(b, r.key)
		b = appendSpan(b, r.value)
		b = binary.AppendVarint(b, int64(len(r.headers)))
		for _, h := range r.headers {
			b = appendSpan(b, []byte(h.name))
			b = appendSpan(b, h.value)
		}
		body = append(binary.AppendVarint(body, int64(len(b))), b...)
		s.delta = max(s.delta, int32(r.offset))
	}
	if len(s.records) > 0 {
		body = compress(int(s.attrs&attrCodec), s.bare, body)
	}
	return seal(s, len(s.records), body)
}

// seal returns a batch: a header with a correct checksum for count records, and body.
func seal(s *spec, count int, body []byte) []byte {
	b := be.AppendUint64(nil, uint64(s.base))
	b = be.AppendUint32(b, uint32(headerLen-12+len(body)))
	b = be.AppendUint32(b, 7+s.later) // leader epoch
	b = append(b, 2, 0, 0, 0, 0)
	b = be.AppendUint16(b, s.attrs)
	b = be.AppendUint32(b, uint32(s.delta))
	b = be.AppendUint64(b, 1_700_000_000_000)
	b = be.AppendUint64(b, 1_700_000_009_999)
	b = be.AppendUint64(b, uint64(s.producer))
	b = be.AppendUint16(b, 0)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint32(b, uint32(count))
	b = append(b, body...)
	return fixChecksum(b)
}

// fixChecksum corrects the checksum of the batch at the start of b.
func fixChecksum(b []byte) []byte {
	size := int(be.Uint32(b[8:])) + 12
	be.PutUint32(b[17:], crc32.Checksum(b[crcFrom:size], castagnoli))
	return b
}

// encodeZstd writes frames without the content size, as producers do that compress while they write.
var encodeZstd = func() func([]byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	return func(src []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		var buf bytes.Buffer
		w.Reset(&buf)
		if _, err := w.Write(src); err != nil {
			panic(err)
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
		return buf.Bytes()
	}
}()

func compress(codec int, bare bool, src []byte) []byte {
	var buf bytes.Buffer
	write := func(w io.WriteCloser) {
		if _, err := w.Write(src); err != nil {
			panic(err)
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
	}
	switch codec {
	case codecGzip:
		write(gzip.NewWriter(&buf))
	case codecSnappy:
		if bare {
			return s2.EncodeSnappy(nil, src)
		}
		return xerial.Encode(nil, src)
	case codecLZ4:
		w := lz4.NewWriter(&buf)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil { // the block size that Java's codec has
			panic(err)
		}
		write(w)
	case codecZstd:
		return encodeZstd(src)
	default:
		return src
	}
	return buf.Bytes()
}

// marker returns a control batch: type 0 aborts, type 1 commits.
func marker(base, producer int64, typ byte) *spec {
	return &spec{
		base: base, producer: producer, attrs: attrTxn | attrControl,
		records: []testRecord{{key: []byte{0, 0, 0, typ}, value: []byte{0, 0, 0, 0, 0, 0}}},
	}
}

func concat(specs ...*spec) (b []byte) {
	for _, s := range specs {
		b = append(b, s.encode()...)
	}
	return b
}

// randomLog makes a log as brokers leave it: interleaved producers, some of them in transactions that commit or abort,
// holes that compaction leaves, and empty batches.
func randomLog(rnd *rand.Rand) (log []*spec, aborted []Aborted) {
	open := map[int64]int64{} // maps a producer to the first offset of its open transaction
	base := rnd.Int64N(1000)
	for range 1 + rnd.IntN(30) {
		p := int64(1 + rnd.IntN(4))
		if first, ok := open[p]; ok && rnd.IntN(3) == 0 {
			typ := byte(rnd.IntN(2))
			if typ == 0 {
				aborted = append(aborted, Aborted{p, first})
			}
			delete(open, p)
			log = append(log, marker(base, p, typ))
			base++
			continue
		}
		s := &spec{base: base, producer: p, attrs: uint16(rnd.IntN(5)), bare: rnd.IntN(2) == 0}
		if rnd.IntN(8) == 0 {
			s.attrs |= attrLogTime
		}
		if _, ok := open[p]; ok || rnd.IntN(2) == 0 {
			s.attrs |= attrTxn
			if !ok {
				open[p] = base
			}
		} else {
			s.producer = -1
		}
		for off := range 1 + rnd.IntN(20) {
			if rnd.IntN(5) == 0 {
				s.delta = int32(off) // compaction removed this record, in the middle or at the end of the batch
				continue
			}
			s.records = append(s.records, randomRecord(rnd, int64(off)))
		}
		if len(s.records) == 0 {
			s.attrs &^= attrCodec // brokers clear the codec of an empty batch, and franz-go needs that
		}
		s.encode() // raises delta to that of the last record
		base += int64(s.delta) + 1
		if rnd.IntN(5) == 0 {
			base += rnd.Int64N(5) // compaction removed whole batches here
		}
		log = append(log, s)
	}
	for p, first := range open { // aborts transactions that are open, because fetches return nothing from the first open one on
		aborted = append(aborted, Aborted{p, first})
		log = append(log, marker(base, p, 0))
		base++
	}
	rnd.Shuffle(len(aborted), func(i, j int) { aborted[i], aborted[j] = aborted[j], aborted[i] })
	return log, aborted
}

func randomRecord(rnd *rand.Rand, off int64) testRecord {
	bin := func() []byte {
		if rnd.IntN(4) == 0 {
			return nil
		}
		b := make([]byte, rnd.IntN(200))
		if rnd.IntN(2) == 0 {
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
		}
		return b
	}
	r := testRecord{offset: off, time: rnd.Int64N(10000) - 100, key: bin(), value: bin()}
	for range rnd.IntN(3) {
		r.headers = append(r.headers, testHeader{fmt.Sprintf("h%d", rnd.IntN(9)), bin()})
	}
	return r
}
