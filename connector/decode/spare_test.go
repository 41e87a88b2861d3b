package decode

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
)

// TestSpare: chunks built in reused buffers are equal to chunks built in new ones; the test overwrites each buffer when
// it is returned. Each chunk has the reported size, and its memory is reused after its release.
func TestSpare(t *testing.T) {
	records, _ := orders(9000)
	p := idempotency.Partition{Topic: "orders", ID: 3}
	for _, distinct := range []int{maxDistinct, 0} {
		rnd := rand.New(rand.NewPCG(uint64(distinct), 1))
		pool := bytepool.NewScrubbing(64 << 20)
		fresh := open(t, parse(t, orderDDL), JSON{}, distinct)
		used := open(t, parse(t, orderDDL), JSON{Spare: pool}, distinct)
		type pair struct{ want, got arrow.RecordBatch }
		var kept []pair
		check := func(i int) {
			t.Helper()
			if !array.RecordEqual(kept[i].want, kept[i].got) {
				t.Fatalf("chunk of %d rows differs", kept[i].want.NumRows())
			}
			kept[i].got.Release()
			kept = append(kept[:i], kept[i+1:]...)
		}
		for range 40 {
			from := rnd.IntN(len(records) - 1)
			to := min(from+1+rnd.IntN(6000), len(records))
			for i := from; i < to; i++ {
				for _, d := range []*jsonDecoder{fresh, used} {
					if err := d.Add(p, &records[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			if used.Allocated() < used.Bytes()/2 {
				t.Errorf("%d held for %d bytes of %d rows", used.Allocated(), used.Bytes(), used.Rows())
			}
			kept = append(kept, pair{fresh.Seal(), used.Seal()})
			if held := used.Allocated(); held != 0 {
				t.Errorf("%d held by an empty builder", held)
			}
			if n := used.Sealed(); n < int64(100*(to-from)) || n > int64(2000*(to-from)+1<<20) {
				t.Errorf("%d rows have %d bytes", to-from, n)
			}
			for len(kept) > rnd.IntN(4) {
				check(rnd.IntN(len(kept)))
			}
		}
		for len(kept) > 0 {
			check(0)
		}
		// A chunk as large as an earlier one allocates little more than its dictionaries. With the race detector,
		// chunks in reused and in new buffers allocate more.
		if again, anew := chunkAllocates(t, p, records, used), chunkAllocates(t, p, records, fresh); again > anew/2 {
			t.Errorf("a chunk of 5000 rows allocates %d bytes in used buffers, %d in new ones", again, anew)
		}
	}
}

// chunkAllocates returns how many bytes the decoder d allocates for a chunk of 5000 rows, after some chunks as a
// warm-up.
func chunkAllocates(t *testing.T, p idempotency.Partition, records []connector.Record, d *jsonDecoder) uint64 {
	t.Helper()
	const chunks = 10
	var before, after runtime.MemStats
	for i := range 2 * chunks {
		if i == chunks {
			runtime.ReadMemStats(&before)
		}
		for r := range 5000 {
			if err := d.Add(p, &records[r]); err != nil {
				t.Fatal(err)
			}
		}
		d.Seal().Release()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / chunks
}
