//go:build unix

package recordbatch

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"sluice/connector"
)

// orders makes a response of about 1 MiB. Its batches have 16 kB, as producers send them by default, and its records
// are JSON of 386 bytes.
func orders(codec uint16, perBatch int) (raw []byte, records int) {
	rnd := rand.New(rand.NewPCG(1, 1))
	letters := "abcdefghijklmnopqrstuvwxyz      "
	base := int64(0)
	for len(raw) < 1<<20 {
		s := &spec{base: base, attrs: codec, producer: -1}
		for i := range perBatch {
			note := make([]byte, 200)
			for j := range note {
				note[j] = letters[rnd.IntN(len(letters))]
			}
			v := fmt.Appendf(nil, `{"order_id":"ord-%012d","customer":"cust-%06d","status":"shipped","created_at":"2026-11-21T10:%02d:%02d.%03dZ",`+
				`"amount":%.2f,"currency":"EUR","qty":%d,"note":"%s"}`,
				rnd.IntN(1e12), rnd.IntN(1e6), rnd.IntN(60), rnd.IntN(60), rnd.IntN(1000), rnd.Float64()*1000, rnd.IntN(9), note)
			s.records = append(s.records, testRecord{offset: int64(i), time: int64(i), key: v[13:29], value: v})
		}
		raw = append(raw, s.encode()...)
		base += int64(perBatch)
		records += perBatch
	}
	return raw, records
}

// cpu returns the CPU time that this process has used, because the wall clock is unreliable on shared cores.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRead opens a response and then reads its records in blocks of 1000.
func BenchmarkRead(b *testing.B) {
	for codec := range uint16(5) {
		for _, per := range []int{42, 2600} { // batches of 16 kB and 1 MB
			b.Run(fmt.Sprintf("%s/%d", codecNames[codec], per), func(b *testing.B) {
				raw, records := orders(codec, per)
				o := NewOpener(Limits{Response: 32 << 20}, nil)
				block := make([]connector.Record, 1000)
				b.ReportAllocs()
				total, start := 0, cpu()
				for b.Loop() {
					batches, err := o.Open(raw, 0, nil)
					if err != nil {
						b.Fatal(err)
					}
					total += batches.Count
					for {
						_, err := batches.Read(block)
						if errors.Is(err, io.EOF) {
							break
						}
						if err != nil {
							b.Fatal(err)
						}
					}
				}
				if total != b.N*records {
					b.Fatal(total)
				}
				b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(total), "cpu-ns/record")
				b.ReportMetric(float64(len(raw))/float64(records), "B/record")
			})
		}
	}
}
