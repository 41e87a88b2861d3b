package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
)

// readAll reads records in blocks of n until there are no more.
func readAll(t *testing.T, b *Batches, n int) (all []connector.Record) {
	t.Helper()
	block := make([]connector.Record, n)
	for {
		n, err := b.Read(block)
		if n > 0 && err != nil {
			t.Fatalf("%d records with %v", n, err)
		}
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil || n == 0 {
			t.Fatalf("%d records, %v", n, err)
		}
		all = append(all, block[:n]...)
	}
}

// open opens raw and returns the batches and the offsets of their records.
func open(t *testing.T, limits Limits, raw []byte, from int64, aborted ...Aborted) (b *Batches, offsets []int64, err error) {
	t.Helper()
	b, err = NewOpener(limits, nil).Open(raw, from, aborted)
	count := b.Count
	for _, r := range readAll(t, b, 7) {
		offsets = append(offsets, r.Offset)
	}
	if len(offsets) != count {
		t.Fatalf("Count %d, but %d records", count, len(offsets))
	}
	return b, offsets, err
}

func reasonOf(err error) hold.Reason {
	var h *hold.Error
	if !errors.As(err, &h) || classify.Of(err) != classify.Fatal {
		return ""
	}
	return h.Reason
}

// TestOracle: from random logs that are cut at random places, Open returns the same records and the same next offset as
// franz-go.
func TestOracle(t *testing.T) {
	const rounds = 500
	o := NewOpener(Limits{}, nil)
	var delivered, written int
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 1))
		log, aborted := randomLog(rnd)
		raw := concat(log...)
		if rnd.IntN(3) == 0 {
			raw = raw[:rnd.IntN(len(raw)+1)]
		}
		from := log[0].base
		if rnd.IntN(3) == 0 { // brokers may answer from an offset inside of the first batch
			from += rnd.Int64N(int64(log[0].delta) + 1)
		}
		want, next := franz(t, raw, from, aborted)
		b, err := o.Open(raw, from, aborted)
		if err != nil || b.Next != next || b.Count != len(want) {
			t.Fatalf("seed %d: %d records, next %d, want %d, %d: %v", seed, b.Count, b.Next, len(want), next, err)
		}
		clear(raw) // no record may share memory with the response
		if got := readAll(t, b, 1+rnd.IntN(50)); !slices.EqualFunc(want, got, sameRecord) {
			t.Fatalf("seed %d: %s", seed, cmp.Diff(want, got))
		}
		delivered += len(want)
		for _, s := range log {
			written += len(s.records)
		}
	}
	t.Logf("%d logs, %d records delivered of %d written", rounds, delivered, written)
}

// sameRecord reports whether two records are equal; a null key or value is not equal to an empty one. It does the same
// as go-cmp, but is a hundred times faster.
func sameRecord(a, b connector.Record) bool {
	same := func(x, y []byte) bool { return bytes.Equal(x, y) && (x == nil) == (y == nil) }
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && same(a.Key, b.Key) && same(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y connector.Header) bool { return x.Key == y.Key && same(x.Value, y.Value) })
}

// franz decodes a response with franz-go. It returns the records and the next offset.
func franz(t *testing.T, raw []byte, from int64, aborted []Aborted) (records []connector.Record, next int64) {
	t.Helper()
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.RecordBatches = slices.Clone(raw)
	for _, a := range aborted {
		ka := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		ka.ProducerID, ka.FirstOffset = a.Producer, a.First
		rp.AbortedTransactions = append(rp.AbortedTransactions, ka)
	}
	p, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: from, IsolationLevel: kgo.ReadCommitted(),
	}, &rp, kgo.DefaultDecompressor(), nil)
	if p.Err != nil {
		t.Fatalf("oracle: %v", p.Err)
	}
	for _, r := range p.Records {
		rec := connector.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, connector.Header{Key: h.Key, Value: h.Value})
		}
		records = append(records, rec)
	}
	return records, next
}

func TestAbortedSortedByFirstOffset(t *testing.T) {
	// Producer 1 begins first and ends last. So its abort marker is the second one, as is its entry in the broker's
	// list.
	raw := concat(
		&spec{base: 0, producer: 1, attrs: attrTxn, records: []testRecord{{}}},
		&spec{base: 1, producer: 2, attrs: attrTxn, records: []testRecord{{}}},
		marker(2, 2, 0),
		&spec{base: 3, producer: 1, attrs: attrTxn, records: []testRecord{{}}},
		marker(4, 1, 0),
		&spec{base: 5, producer: 1, attrs: attrTxn, records: []testRecord{{}}},
		marker(6, 1, 1),
	)
	b, got, err := open(t, Limits{}, raw, 0, Aborted{2, 1}, Aborted{1, 0})
	if err != nil || b.Next != 7 || !slices.Equal(got, []int64{5}) {
		t.Fatal(got, b.Next, err)
	}
}

func TestNextMovesOverEmptyTails(t *testing.T) {
	two := concat(&spec{base: 0, records: []testRecord{{}}}, &spec{base: 1, records: []testRecord{{}}})
	for _, tt := range []struct {
		name  string
		raw   []byte
		next  int64
		epoch int32
		cut   int
	}{
		{"compacted tail", concat(&spec{base: 0, delta: 9, attrs: 3, records: []testRecord{{offset: 2}}}), 10, 7, 0},
		{"empty batch", concat(&spec{base: 0, delta: 9, attrs: 4}), 10, 7, 0},
		{"markers only", concat(marker(0, 1, 1), marker(1, 2, 0)), 2, 7, 0},
		{"aborted marker of an unknown type", concat(marker(0, 1, 9)), 1, 7, 0},
		{"cut batch", two[:100], 1, 7, len(two) / 2},
		{"cut below the length", two[:len(two)/2+11], 1, 7, 0},
		{"cut below the magic", two[:len(two)/2+12], 1, 7, len(two) / 2},
		{"nothing", nil, 0, -1, 0},
		{"cut first batch", two[:40], 0, -1, len(two) / 2},
		{"wholly before", two, 2, 7, 0},
	} {
		from := int64(0)
		if tt.name == "wholly before" {
			from = 2
		}
		b, _, err := open(t, Limits{}, tt.raw, from)
		if err != nil || b.Next != tt.next || b.Epoch != tt.epoch || b.Truncated != tt.cut {
			t.Errorf("%s: next %d, want %d, epoch %d, cut %d, want %d: %v", tt.name, b.Next, tt.next, b.Epoch, b.Truncated, tt.cut, err)
		}
	}
}

func TestTimestamps(t *testing.T) {
	recs := []testRecord{{time: 5}, {offset: 1, time: -3}}
	for _, tt := range []struct {
		attrs uint16
		want  []int64
		by    connector.TimestampType
	}{
		{0, []int64{1_700_000_000_005, 1_699_999_999_997}, connector.CreateTime},
		{attrLogTime, []int64{1_700_000_009_999, 1_700_000_009_999}, connector.LogAppendTime},
	} {
		b, err := NewOpener(Limits{}, nil).Open(concat(&spec{attrs: tt.attrs, records: recs}), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, r := range readAll(t, b, 10) {
			got = append(got, r.Timestamp)
			if r.SetBy != tt.by {
				t.Errorf("attributes %d: set by %q, want %q", tt.attrs, r.SetBy, tt.by)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("attributes %d: %v", tt.attrs, got)
		}
	}
}

// TestRefusals: the error for a bad batch names its offset. The batches before it are delivered, and no record of the
// bad batch is.
func TestRefusals(t *testing.T) {
	good := &spec{base: 5, records: []testRecord{{value: []byte("x")}, {offset: 1}}}
	first := good.encode()
	old := make([]byte, 26) // the shortest v0 message is shorter than a v2 header
	be.PutUint32(old[8:], 14)
	magic := func(m byte) []byte {
		b := good.encode()
		b[16] = m
		return b
	}
	with := func(at int, v ...byte) []byte {
		b := good.encode()
		copy(b[at:], v)
		return fixChecksum(b)
	}
	flipped := good.encode()
	flipped[len(flipped)-1] ^= 1
	record := func(bytes ...byte) []byte { return append(binary.AppendVarint(nil, int64(len(bytes))), bytes...) }
	body := func(count int, body []byte) []byte { return seal(&spec{base: 5, delta: 3}, count, body) }
	many := make([]testHeader, maxHeaders+1)
	for _, tt := range []struct {
		name, text string
		raw        []byte
		reason     hold.Reason
	}{
		{"magic 0", "format v0", old, hold.CorruptBatch},
		{"magic 1", "format v1", magic(1), hold.CorruptBatch},
		{"magic 3", "format v3", magic(3), hold.CorruptBatch},
		{"checksum", "offset 5: its checksum", flipped, hold.CorruptBatch},
		{"length", "length", func() []byte { b := good.encode(); be.PutUint32(b[8:], 20); return b }(), hold.CorruptBatch},
		{"negative delta", "delta", with(23, 0xff), hold.CorruptBatch},
		{"negative count", "records", with(57, 0xff), hold.CorruptBatch},
		{"count too high", "record 3 of 3", with(57, 0, 0, 0, 3), hold.CorruptBatch},
		{"count too low", "bytes follow", with(57, 0, 0, 0, 1), hold.CorruptBatch},
		{"offset beyond batch", "offset +1 after +0", with(23, 0, 0, 0, 0), hold.CorruptBatch},
		{"offsets fall", "offset +0 after +1", body(2, append(record(0, 0, 2, 1, 1, 0), record(0, 0, 0, 1, 1, 0)...)), hold.CorruptBatch},
		{"same offset", "offset +1 after +1", body(2, append(record(0, 0, 2, 1, 1, 0), record(0, 0, 2, 1, 1, 0)...)), hold.CorruptBatch},
		{"trailing bytes", "follow", body(1, append(record(0, 0, 0, 1, 1, 0), 99)), hold.CorruptBatch},
		{"bytes in a record", "malformed", body(1, record(0, 0, 0, 1, 1, 0, 99)), hold.CorruptBatch},
		{"key beyond record", "malformed", body(1, record(0, 0, 0, 20, 1, 0)), hold.CorruptBatch},
		{"header without name", "malformed", body(1, record(0, 0, 0, 1, 1, 2, 1, 1)), hold.CorruptBatch},
		{"more headers than bytes", "malformed", body(1, record(0, 0, 0, 1, 1, 200, 1, 0)), hold.CorruptBatch},
		{"records of an empty batch", "follow", body(0, []byte{1}), hold.CorruptBatch},
		{"codec", "codec 5", seal(&spec{base: 5, attrs: 5}, 1, []byte("?")), hold.CorruptBatch},
		{"gzip", "codec gzip", seal(&spec{base: 5, attrs: 1}, 1, []byte("?")), hold.CorruptBatch},
		{"snappy", "codec snappy", seal(&spec{base: 5, attrs: 2}, 1, []byte("?")), hold.CorruptBatch},
		{"xerial", "codec snappy", seal(&spec{base: 5, attrs: 2}, 1, []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x09?")), hold.CorruptBatch},
		{"lz4", "codec lz4", seal(&spec{base: 5, attrs: 3}, 1, []byte("?????????")), hold.CorruptBatch},
		{"zstd", "codec zstd", seal(&spec{base: 5, attrs: 4}, 1, []byte("?????????")), hold.CorruptBatch},
		{"cut zstd", "codec zstd", func() []byte {
			z := compress(codecZstd, false, bytes.Repeat([]byte("sluice"), 5000))
			return seal(&spec{base: 5, attrs: 4}, 1, z[:len(z)/2])
		}(), hold.CorruptBatch},
		{"headers", "65537 headers", concat(&spec{base: 5, records: []testRecord{{headers: many}}}), hold.Oversize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, got, err := open(t, Limits{}, tt.raw, 5)
			if reasonOf(err) != tt.reason || !strings.Contains(err.Error(), tt.text) || b.Next != 5 || len(got) != 0 {
				t.Errorf("alone: next %d, %v, records %v", b.Next, err, got)
			}
			// A good batch comes before the bad one, and another good one after it.
			second := slices.Clone(tt.raw)
			be.PutUint64(second, 7)
			third := (&spec{base: 20, records: []testRecord{{}}}).encode()
			b, got, err = open(t, Limits{}, slices.Concat(first, second, third), 5)
			if reasonOf(err) != tt.reason || b.Next != 7 || !slices.Equal(got, []int64{5, 6}) {
				t.Errorf("second: next %d, %v, records %v", b.Next, err, got)
			}
		})
	}
}

// TestOpen_CodecPanics: if a codec panics, only its batch fails. Open returns the batches before it, releases the
// memory of the bad batch, and opens other batches of the same codec afterwards.
func TestOpen_CodecPanics(t *testing.T) {
	batch := func(base int64) []byte {
		return (&spec{base: base, attrs: codecLZ4, records: []testRecord{{value: []byte("x")}, {offset: 1}}}).encode()
	}
	first := (&spec{base: 5, records: []testRecord{{value: []byte("x")}, {offset: 1}}}).encode()
	m := &budget{t: t, size: 4 << 20}
	o := NewOpener(Limits{}, m)
	o.codecs.lz4 = new(lz4.Reader) // an lz4.Reader that was not made by NewReader panics
	b, err := o.Open(slices.Concat(first, batch(7), batch(9)), 5, nil)
	if reasonOf(err) != hold.CorruptBatch || b.Next != 7 || b.Count != 2 ||
		!strings.Contains(err.Error(), "offset 7: opening it panicked: codec lz4: panic: ") {
		t.Errorf("next %d, %d records, %v", b.Next, b.Count, err)
	}
	b.Release()
	if m.used != 0 {
		t.Errorf("%d bytes are not returned", m.used)
	}
	if _, err = o.Open(concat(), 5, nil); err != nil {
		t.Error(err)
	}
	if b, err = o.Open(batch(9), 9, nil); err != nil || b.Next != 11 || b.Count != 2 {
		t.Errorf("the codec after its panic: next %d, %d records, %v", b.Next, b.Count, err)
	}
}

// TestAnswerLimit: once the opened batches have Limits.Response bytes, Open opens no more. The next fetch result has
// the batches that are left.
func TestAnswerLimit(t *testing.T) {
	var log []*spec
	for i := range 10 {
		log = append(log, &spec{base: int64(i), attrs: codecZstd, records: []testRecord{{value: make([]byte, 100<<10)}}})
	}
	raw := concat(log...)
	total, fetches := 0, 0
	for next := int64(0); next < 10; fetches++ {
		b, got, err := open(t, Limits{Response: 250 << 10}, raw, next)
		if err != nil || len(got) == 0 || got[0] != next || b.Bytes > 600<<10 {
			t.Fatal(got, b.Bytes, err)
		}
		total += len(got)
		next = b.Next
	}
	if total != 10 || fetches < 3 {
		t.Fatal(total, fetches)
	}
}

// TestAnswerHasOneEpoch: a fetch result ends where the leader epoch changes, also if it changes at a control batch or
// an empty batch. So all records of a result have its epoch.
func TestAnswerHasOneEpoch(t *testing.T) {
	raw := concat(
		&spec{base: 0, records: []testRecord{{}, {offset: 1}}}, &spec{base: 2, records: []testRecord{{}}},
		&spec{base: 3, delta: 1, later: 2}, &spec{base: 5, later: 2, records: []testRecord{{}}},
		&spec{base: 6, later: 3, records: []testRecord{{}}},
	)
	type answer struct {
		offsets []int64
		next    int64
		epoch   int32
	}
	var all []answer
	for next := int64(0); next < 7; {
		b, got, err := open(t, Limits{}, raw, next)
		if err != nil || b.Truncated != 0 || b.Next <= next {
			t.Fatalf("from %d: next %d, cut %d: %v", next, b.Next, b.Truncated, err)
		}
		next = b.Next
		all = append(all, answer{got, b.Next, b.Epoch})
		raw = raw[bytes.Index(raw, be.AppendUint64(nil, uint64(min(next, 6)))):] // makes the response begin with the batch that contains next
	}
	want := []answer{{[]int64{0, 1, 2}, 3, 7}, {[]int64{5}, 6, 9}, {[]int64{6}, 7, 10}}
	if d := cmp.Diff(want, all, cmp.AllowUnexported(answer{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestReadShortBlocks(t *testing.T) {
	raw := concat(&spec{base: 0, records: []testRecord{{offset: 0}, {offset: 1}, {offset: 2}}}, &spec{base: 9, records: []testRecord{{}}})
	b, err := NewOpener(Limits{}, nil).Open(raw, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.Read(nil); n != 0 || err != nil {
		t.Fatal("an empty block:", n, err)
	}
	for _, want := range []int64{1, 2, 9} {
		var one [1]connector.Record
		if n, err := b.Read(one[:]); n != 1 || err != nil || one[0].Offset != want {
			t.Fatal(n, err, one[0])
		}
	}
	for range 2 {
		var one [1]connector.Record
		if n, err := b.Read(one[:]); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatal(n, err)
		}
	}
}

// TestRecordsEndWhereTheyEnd: appending to a value does not overwrite the next one.
func TestRecordsEndWhereTheyEnd(t *testing.T) {
	b, err := NewOpener(Limits{}, nil).Open(concat(&spec{records: []testRecord{
		{key: []byte("key"), value: []byte("value"), headers: []testHeader{{"h", []byte("v")}, {"h", nil}}},
		{offset: 1, headers: []testHeader{{"h", []byte("w")}}},
	}}), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := readAll(t, b, 10)
	if cap(r[0].Key) != 3 || cap(r[0].Value) != 5 || cap(r[0].Headers) != 2 || cap(r[0].Headers[0].Value) != 1 {
		t.Fatal(cap(r[0].Key), cap(r[0].Value), cap(r[0].Headers))
	}
	if r[0].Headers[1].Value != nil || r[1].Key != nil || r[1].Value != nil {
		t.Fatal("a null is not null")
	}
}

// TestAllocations: opening a response with a batch of 1000 records and reading them allocates at most ten times, with
// each codec.
func TestAllocations(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	block := make([]connector.Record, 500)
	for codec := range uint16(5) {
		s := &spec{attrs: codec}
		for i := range 1000 {
			value := bytes.Repeat([]byte{byte(rnd.Uint32()), byte(rnd.Uint32()), 'x'}, 100)
			s.records = append(s.records, testRecord{offset: int64(i), value: value})
		}
		raw := s.encode()
		o := NewOpener(Limits{}, nil)
		perAnswer := testing.AllocsPerRun(20, func() {
			b, err := o.Open(raw, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			for {
				if _, err := b.Read(block); err != nil {
					break
				}
			}
		})
		if perAnswer > 10 { // Open allocates Batches, its list and its buffer; with -race, pools are emptied
			t.Errorf("codec %s: %.0f allocations for 1000 records", codecNames[codec], perAnswer)
		}
	}
}

// TestBombs: a batch that decompresses to 200 MiB is refused as oversize, with every codec, and keeps no memory.
func TestBombs(t *testing.T) {
	const huge = 200 << 20
	zeros := make([]byte, huge)
	for codec := codecNone; codec <= codecZstd; codec++ {
		bomb := seal(&spec{base: 3, attrs: uint16(codec)}, 1, compress(codec, false, zeros))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		b, _, err := open(t, Limits{}, bomb, 3)
		runtime.ReadMemStats(&after)
		if reasonOf(err) != hold.Oversize || b.Next != 3 || b.Bytes != 0 {
			t.Errorf("%s: next %d, %d bytes: %v", codecNames[codec], b.Next, b.Bytes, err)
		}
		t.Logf("%s: %d bytes for %d MiB refused, %d MiB allocated on the way: %v", codecNames[codec], len(bomb), huge>>20,
			(after.TotalAlloc-before.TotalAlloc)>>20, err)
	}
}

// TestLies: if a frame claims a larger size than its data have, the decoder allocates no buffer of the claimed size.
func TestLies(t *testing.T) {
	for codec, body := range map[int][]byte{
		codecSnappy: append(binary.AppendUvarint(nil, 60<<20), 0, 'x'),
		// a frame with a single segment and content size 56 MiB, but only one empty raw block
		codecZstd: {0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0x80, 3, 1, 0, 0},
	} {
		var before, after runtime.MemStats
		raw := seal(&spec{attrs: uint16(codec)}, 1, body)
		_, _, _ = open(t, Limits{}, raw, 0) // makes the decoder allocate its tables before the measurement
		runtime.ReadMemStats(&before)
		_, _, err := open(t, Limits{}, raw, 0)
		runtime.ReadMemStats(&after)
		if err == nil || after.TotalAlloc-before.TotalAlloc > 2<<20 {
			t.Errorf("%s: %d bytes for a lie: %v", codecNames[codec], after.TotalAlloc-before.TotalAlloc, err)
		}
	}
}

// TestHonestRatio: batches that compress extremely well are no bombs. A batch of nearly equal records, 15 MiB from a
// few kB, is opened.
func TestHonestRatio(t *testing.T) {
	for codec := range uint16(5) {
		s := &spec{attrs: codec}
		for i := range 15 {
			s.records = append(s.records, testRecord{offset: int64(i), value: make([]byte, 1<<20)})
		}
		raw := s.encode()
		_, got, err := open(t, Limits{}, raw, 0)
		if err != nil || len(got) != 15 {
			t.Error(codecNames[codec], len(got), err)
		}
	}
}

// TestZstdWindow: batches that Java producers compress with zstd at level 22 are opened, although they declare a window
// of 128 MiB and no size.
func TestZstdWindow(t *testing.T) {
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, zstd.WithWindowSize(128<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	plain := (&spec{records: []testRecord{{value: make([]byte, 1<<20)}}}).encode()[headerLen:]
	for _, part := range [][]byte{plain[:len(plain)/2], plain[len(plain)/2:]} {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil { // after a flush, the encoder cannot know the content size when it writes the header
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var h zstd.Header
	if err := h.Decode(buf.Bytes()); err != nil || h.WindowSize != 128<<20 || h.HasFCS {
		t.Fatal(h, err)
	}
	b, got, err := open(t, Limits{}, seal(&spec{attrs: 4}, 1, buf.Bytes()), 0)
	if err != nil || len(got) != 1 || b.Bytes > 4<<20 {
		t.Fatal(got, b.Bytes, err)
	}
}

// TestLimitAtEverySize: with each codec, if the limit is below the size of the data, the error is errTooLarge. If only
// the first buffer is too small, decompress tries larger ones and returns all data. The test tries sizes in all parts
// of the data, which have every kind of block.
func TestLimitAtEverySize(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	src := make([]byte, 700<<10)
	for i := range src {
		src[i] = "abcdefghij"[rnd.IntN(1+i%10)]
	}
	for i := 100 << 10; i < 300<<10; i++ {
		src[i] = 'z' // an RLE block
	}
	for i := 400 << 10; i < 500<<10; i++ {
		src[i] = byte(rnd.Uint32()) // a raw one
	}
	var c codecs
	for codec := codecGzip; codec <= codecZstd; codec++ {
		z := compress(codec, false, src)
		for size := 0; size < len(src); size += 1 + rnd.IntN(30000) {
			if _, err := c.decompress(codec, z, &arena{memory: heap{}}, size); !errors.Is(err, errTooLarge) {
				t.Fatalf("%s, limit %d: %v", codecNames[codec], size, err)
			}
			a := &arena{memory: heap{}, chunks: [][]byte{make([]byte, 0, size)}}
			out, err := c.decompress(codec, z, a, 1<<20)
			if err != nil || !bytes.Equal(out, src) {
				t.Fatalf("%s, from %d: %v", codecNames[codec], size, err)
			}
		}
	}
}
