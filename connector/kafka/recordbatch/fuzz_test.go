package recordbatch

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"sluice/connector"
	"sluice/reliability/hold"
)

// FuzzBatch decodes any bytes. Decoding must neither panic nor exceed its memory limit; offsets must rise, no record
// may be delivered twice, and every error must be a hold. FuzzBatch corrects checksums, or every mutation would fail
// there. (Run it with -fuzzminimizetime 20x, or it spends its time on shrinking one input.)
func FuzzBatch(f *testing.F) {
	for seed := range 40 {
		log, _ := randomLog(rand.New(rand.NewPCG(uint64(seed), 3)))
		f.Add(concat(log[:min(len(log), 4)]...), log[0].base, int64(seed%4), log[0].base+int64(seed%7))
	}
	f.Add(concat(marker(3, 1, 0), marker(4, 1, 1)), int64(3), int64(1), int64(0))
	limits := Limits{Batch: 1 << 20, Floor: 1 << 18, Response: 1 << 20}
	f.Fuzz(func(t *testing.T, raw []byte, from, producer, first int64) {
		if from < 0 || from > 1<<62 {
			return
		}
		raw = slices.Clone(raw)
		for p := raw; len(p) >= headerLen; {
			size := int64(int32(be.Uint32(p[8:]))) + 12
			if size < headerLen || size > int64(len(p)) {
				break
			}
			fixChecksum(p)
			p = p[size:]
		}
		o := NewOpener(limits, nil)
		last := from - 1
		// Open the same bytes twice: an error of the first Open must not change what the second returns.
		for range 2 {
			from := last + 1
			b, err := o.Open(raw, from, []Aborted{{producer, first}, {producer + 1, first / 2}})
			if err != nil && reasonOf(err) != hold.CorruptBatch && reasonOf(err) != hold.Oversize {
				t.Fatal(err)
			}
			if b.Bytes > limits.Response+2*limits.Batch {
				t.Fatalf("%d bytes", b.Bytes)
			}
			block, count := make([]connector.Record, 3), 0
			for {
				n, err := b.Read(block)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil || n == 0 {
					t.Fatal(n, err)
				}
				for _, r := range block[:n] {
					if r.Offset <= last {
						t.Fatalf("offset %d after %d", r.Offset, last)
					}
					last = r.Offset
				}
				count += n
			}
			if count != b.Count || b.Next < from || b.Next <= last {
				t.Fatalf("%d of %d records, next %d after record %d, from %d", count, b.Count, b.Next, last, from)
			}
			if err == nil && last >= from && b.Next == from {
				t.Fatal("no progress with records")
			}
			last = b.Next - 1
		}
	})
}
