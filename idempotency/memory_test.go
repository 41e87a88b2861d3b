package idempotency_test

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"slices"
	"testing"
	"time"

	"sluice/idempotency"
	"sluice/idempotency/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) idempotency.Store { return idempotency.NewMemory(1<<30, nil) })
}

// hashed returns the fingerprint number n. It looks random and differs for each n.
func hashed(n int64) idempotency.Fingerprint {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	sum := sha256.Sum256(b[:])
	return idempotency.Fingerprint(sum[:16])
}

// stream yields the entries of the offsets [from, to) of one partition. There are perHour entries in each hour.
func stream(from, to, perHour int64) func(func(idempotency.Entry) bool) {
	return func(yield func(idempotency.Entry) bool) {
		for i := from; i < to; i++ {
			if !yield(idempotency.Entry{Fingerprint: hashed(i), Offset: i, At: day.UnixMilli() + i*hour/perHour}) {
				return
			}
		}
	}
}

func TestAnEntryTakesWhatIsPromised(t *testing.T) {
	for _, n := range []int64{100_000, 250_000, 777_777} {
		m := idempotency.NewMemory(1<<30, nil)
		if err := m.Remember(t.Context(), scope, 0, n, stream(0, n, n/24)); err != nil {
			t.Fatal(err)
		}
		s := m.Stats()
		if s.Entries != n {
			t.Fatalf("%d entries of %d", s.Entries, n)
		}
		if each := float64(s.Bytes) / float64(n); each < 20 || each > idempotency.BytesPerEntry+4 {
			t.Errorf("%d entries take %.1f bytes each", n, each)
		}
	}
	if got, want := idempotency.SizeOf(1000, 24*time.Hour), int64(1000*25*3600*idempotency.BytesPerEntry); got != want {
		t.Errorf("a thousand a second for a day need %d bytes, want %d", got, want)
	}
}

func TestSweepingGivesMemoryBack(t *testing.T) {
	m := idempotency.NewMemory(1<<30, nil)
	const n, perHour = 200_000, 10_000
	if err := m.Remember(t.Context(), scope, 0, n, stream(0, n, perHour)); err != nil {
		t.Fatal(err)
	}
	full := m.Stats()
	if err := m.Sweep(t.Context(), scope, day.UnixMilli()+15*hour); err != nil {
		t.Fatal(err)
	}
	s := m.Stats()
	if s.Entries != 50_000 || s.Bytes > full.Bytes*3/10 {
		t.Errorf("%d of %d entries left in %d of %d bytes", s.Entries, full.Entries, s.Bytes, full.Bytes)
	}
	seen, err := m.Seen(t.Context(), scope, stream(0, n, perHour))
	if err != nil || len(seen) != 50_000 {
		t.Errorf("%d are found, %v", len(seen), err)
	}
	m.Release(scope)
	if s := m.Stats(); s.Bytes != 0 || s.Entries != 0 || s.Scopes != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

func TestTheLimitForgetsTheOldestAndSaysSo(t *testing.T) {
	const limit = 2 << 20
	var told []idempotency.Forgotten
	m := (*idempotency.Memory)(nil)
	m = idempotency.NewMemory(limit, func(f idempotency.Forgotten) {
		told = append(told, f)
		_ = m.Stats() // allowed here, and without an effect
	})
	small := scope
	small.Partition.ID = 4
	if err := m.Remember(t.Context(), small, 0, 100, stream(0, 100, 10)); err != nil {
		t.Fatal(err)
	}
	const n, perHour, cut = 300_000, 5000, 10_000
	for from := int64(0); from < n; from += cut {
		if err := m.Remember(t.Context(), scope, from, from+cut, stream(from, from+cut, perHour)); err != nil {
			t.Fatal(err)
		}
		if s := m.Stats(); s.Bytes > limit {
			t.Fatalf("%d bytes at offset %d, the limit is %d", s.Bytes, from+cut, limit)
		}
	}
	s := m.Stats()
	var gone int64
	for _, f := range told {
		gone += f.Entries
		if f.Scope != scope {
			t.Errorf("shortened %v, the small one", f.Scope)
		}
	}
	if len(told) == 0 || gone != s.Lost || s.Entries+gone != n+100 {
		t.Fatalf("told of %d in %d times, lost %d, %d are left of %d", gone, len(told), s.Lost, s.Entries, n+100)
	}
	// The entries that are left are exactly those that are not older than the time that was reported last.
	before := told[len(told)-1].Before
	seen, err := m.Seen(t.Context(), scope, stream(0, n, perHour))
	if err != nil {
		t.Fatal(err)
	}
	for e := range stream(0, n, perHour) {
		if _, ok := seen[e.Fingerprint]; ok != (e.At >= before) {
			t.Fatalf("offset %d at %d: remembered %v, whole from %d on", e.Offset, e.At, ok, before)
		}
	}
	if used := float64(s.Bytes) / limit; used < 0.7 {
		t.Errorf("forgot too much: only %.0f %% of the limit is used", 100*used)
	}
}

func TestALimitBelowEverythingStillWorks(t *testing.T) {
	told := 0
	m := idempotency.NewMemory(1, func(idempotency.Forgotten) { told++ })
	for from := range int64(5) {
		if err := m.Remember(t.Context(), scope, from, from+1, stream(from, from+1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if through, err := m.Through(t.Context(), scope); err != nil || through != 5 || told != 5 {
		t.Errorf("through %d, %v, told %d times", through, err, told)
	}
}

// BenchmarkTenMillion fills a window of a day with ten million fingerprints, as after a loss of the store, and looks
// some up.
func BenchmarkTenMillion(b *testing.B) {
	const n = 10_000_000
	all := slices.Collect(stream(0, n, n/24))
	strangers := slices.Collect(stream(n, n+1_000_000, n/24))
	var m *idempotency.Memory
	b.Run("fill", func(b *testing.B) {
		var before, after runtime.MemStats
		for b.Loop() {
			m = nil
			runtime.GC()
			runtime.ReadMemStats(&before)
			m = idempotency.NewMemory(1<<40, nil)
			for from := int64(0); from < n; from += 50_000 {
				_ = m.Remember(b.Context(), scope, from, from+50_000, slices.Values(all[from:from+50_000]))
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(m.Stats().Bytes)/n, "accounted-B/entry")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "heap-B/entry")
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s")
	})
	b.Run("miss", func(b *testing.B) {
		for b.Loop() {
			_, _ = m.Seen(b.Context(), scope, slices.Values(strangers))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(strangers)), "ns/lookup")
	})
	b.Run("judge", func(b *testing.B) {
		for b.Loop() {
			j := idempotency.NewJudge(24*time.Hour, day, idempotency.Never, nil, len(strangers))
			for _, e := range strangers {
				if j.Duplicate(e) {
					b.Fatal("a stranger is a duplicate")
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(strangers)), "ns/record")
	})
	b.Run("sweep", func(b *testing.B) {
		for b.Loop() {
			_ = m.Sweep(b.Context(), scope, day.UnixMilli()+hour)
		}
	})
}

// TestASmallWindowIsSmall: the window of a partition with few records takes little memory.
func TestASmallWindowIsSmall(t *testing.T) {
	m := idempotency.NewMemory(1<<30, nil)
	for id := range int32(1000) {
		small := scope
		small.Partition.ID = id
		if err := m.Remember(t.Context(), small, 0, 20, stream(0, 20, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if s := m.Stats(); s.Entries != 20_000 || s.Bytes > 2<<20 {
		t.Errorf("%d entries of 1000 partitions take %d bytes", s.Entries, s.Bytes)
	}
}
