package idempotency_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/idempotency"
)

const (
	minute = int64(60_000)
	hour   = 60 * minute
)

var (
	day   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	scope = idempotency.Scope{Pipeline: "p", TableID: "t", Partition: idempotency.Partition{Topic: "orders", ID: 3}}
)

func fingerprint(n uint64) (f idempotency.Fingerprint) {
	if n == 0 {
		return f
	}
	binary.BigEndian.PutUint64(f[:8], n*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(f[8:], n)
	return f
}

func TestTheWindowIsExact(t *testing.T) {
	at := day.UnixMilli()
	for _, c := range []struct {
		name  string
		twin  int64
		dup   bool
		after int64 // the newest timestamp of a row afterwards
	}{
		{"the same moment", at, true, at},
		{"a second later", at + 1000, true, at},
		{"23 h 59 m later", at + 24*hour - minute, true, at},
		{"24 h later", at + 24*hour, true, at},
		{"a millisecond more", at + 24*hour + 1, false, at + 24*hour + 1},
		{"24 h 01 m later", at + 24*hour + minute, false, at + 24*hour + minute},
		{"earlier", at - 5*hour, true, at},
		{"no timestamp", -1, false, at},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := day.Add(48 * time.Hour)
			j := idempotency.NewJudge(24*time.Hour, now, idempotency.Never, nil, 2)
			if j.Duplicate(idempotency.Entry{Fingerprint: fingerprint(1), At: at}) {
				t.Fatal("the first is a duplicate")
			}
			if got := j.Duplicate(idempotency.Entry{Fingerprint: fingerprint(1), Offset: 1, At: c.twin}); got != c.dup {
				t.Errorf("in one cut: %v, want %v", got, c.dup)
			}
			if j.Newest() != c.after {
				t.Errorf("newest is %d, want %d", j.Newest(), c.after)
			}
			seen := map[idempotency.Fingerprint]int64{fingerprint(1): at}
			j = idempotency.NewJudge(24*time.Hour, now, at, seen, 1)
			if got := j.Duplicate(idempotency.Entry{Fingerprint: fingerprint(1), Offset: 1, At: c.twin}); got != c.dup || j.Newest() != c.after {
				t.Errorf("in the next cut: %v and newest %d, want %v and %d", got, j.Newest(), c.dup, c.after)
			}
		})
	}
}

func TestAWrongClockDoesNotEndTheWindow(t *testing.T) {
	now := day.UnixMilli()
	j := idempotency.NewJudge(24*time.Hour, day, now-23*hour, map[idempotency.Fingerprint]int64{fingerprint(1): now - 23*hour - 1}, 4)
	if j.Duplicate(idempotency.Entry{Fingerprint: fingerprint(2), At: now + 1000*24*hour}) || j.Newest() != now {
		t.Fatalf("a record from the future moved the clock to %d, now is %d", j.Newest(), now)
	}
	if !j.Duplicate(idempotency.Entry{Fingerprint: fingerprint(1), At: now - hour}) {
		t.Error("it ended the window of a record of 23 hours ago")
	}
	if j.Duplicate(idempotency.Entry{Fingerprint: fingerprint(3), At: now + hour}) || j.Newest() != now+hour {
		t.Errorf("an hour ahead is in order, newest is %d", j.Newest())
	}
	if j.Duplicate(idempotency.Entry{Fingerprint: fingerprint(1), At: now - hour}) {
		t.Error("the clock moved on by an hour: what is 24 hours older is out of the window")
	}
}

func TestWhatHasNoIdentityIsNeverADuplicate(t *testing.T) {
	j := idempotency.NewJudge(24*time.Hour, day, idempotency.Never, nil, 4)
	at := day.UnixMilli()
	for range 3 {
		if j.Duplicate(idempotency.Entry{At: at}) {
			t.Error("no identity: a duplicate")
		}
		if j.Duplicate(idempotency.Entry{Fingerprint: fingerprint(1), At: -1}) {
			t.Error("no timestamp: a duplicate")
		}
	}
	if j.Newest() != at {
		t.Error("a row without identity does not count for the newest")
	}
	if j.Duplicate(idempotency.Entry{Fingerprint: fingerprint(1), At: at}) {
		t.Error("what has no timestamp was remembered")
	}
	if got, want := j.Counts(), (idempotency.Counts{Misses: 1, None: 3, Undated: 3}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

type record struct {
	idempotency.Entry
	now int64
}

// naive returns for each record whether it becomes a row, by the definition: it compares the record with all rows
// before it.
func naive(length int64, records []record) (kept []bool) {
	type row struct {
		f  idempotency.Fingerprint
		at int64
	}
	var rows []row
	newest := idempotency.Never
	for _, r := range records {
		at := r.At
		if at > r.now+hour {
			at = r.now
		}
		duplicate := false
		if at >= 0 {
			clock := max(newest, at)
			for _, old := range rows {
				if !r.Fingerprint.IsZero() && old.f == r.Fingerprint && old.at >= clock-length {
					duplicate = true
				}
			}
			if !duplicate {
				rows = append(rows, row{r.Fingerprint, at})
				newest = clock
			}
		}
		kept = append(kept, !duplicate)
	}
	return kept
}

// TestCutsSweepsAndRebuildsDecideAlike: the same records become rows, however they are divided into batches. It does
// not matter either when the store is swept, or emptied and filled again from the rows.
func TestCutsSweepsAndRebuildsDecideAlike(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const length = 24 * time.Hour
		store := idempotency.NewMemory(1<<30, nil)
		n := rapid.IntRange(1, 60).Draw(r, "records")
		records := make([]record, n)
		now := day.UnixMilli()
		at := rapid.SampledFrom([]int64{now, now - 100*24*hour, now - hour}).Draw(r, "from")
		for i := range records {
			now += rapid.Int64Range(0, 30).Draw(r, "minutes pass") * minute
			at += rapid.SampledFrom([]int64{0, 0, 1, minute, hour, 5 * hour, 24 * hour, -hour, -23 * hour, 40 * hour}).Draw(r, "later")
			t := at
			switch rapid.IntRange(0, 12).Draw(r, "odd") {
			case 0:
				t = -1
			case 1:
				t = at - rapid.Int64Range(0, 60).Draw(r, "hours late")*hour
			case 2:
				t = 0
			}
			t = min(t, now+hour) // a timestamp that is later counts as now, and now depends on the batch, so the test avoids it
			records[i] = record{idempotency.Entry{Fingerprint: fingerprint(rapid.Uint64Range(0, 6).Draw(r, "fingerprint")), Offset: int64(i), At: t}, now}
		}
		want := naive(length.Milliseconds(), records)
		newest, kept := idempotency.Never, []idempotency.Entry(nil)
		for from := 0; from < n; {
			next := min(from+rapid.IntRange(1, 20).Draw(r, "cut"), n)
			cut := records[from:next]
			now := cut[0].now // no record is later than this, so now does not change the result
			for i := range cut {
				now = max(now, cut[i].now)
			}
			seen, err := store.Seen(t.Context(), scope, entriesOf(cut))
			if err != nil {
				r.Fatal(err)
			}
			j := idempotency.NewJudge(length, time.UnixMilli(now), newest, seen, len(cut))
			var rows []idempotency.Entry
			for i, rec := range cut {
				if dup := j.Duplicate(rec.Entry); dup == want[from+i] {
					r.Fatalf("record %d: duplicate %v, the rule says %v", from+i, dup, !dup)
				} else if at, ok := idempotency.Effective(rec.At, now); !dup && ok && !rec.Fingerprint.IsZero() {
					rec.At = at
					rows = append(rows, rec.Entry)
				}
			}
			newest = j.Newest()
			kept = append(kept, rows...)
			if err := store.Remember(t.Context(), scope, int64(from), int64(next), slices.Values(rows)); err != nil {
				r.Fatal(err)
			}
			switch rapid.IntRange(0, 5).Draw(r, "then") {
			case 0:
				_ = store.Sweep(t.Context(), scope, newest-length.Milliseconds())
			case 1: // the partition moves to another process, whose store is filled from the rows, in any order
				store = idempotency.NewMemory(1<<30, nil)
				rows := rapid.Permutation(kept).Draw(r, "rows")
				rows = slices.DeleteFunc(rows, func(e idempotency.Entry) bool { return e.At < newest-length.Milliseconds() })
				if err := store.Remember(t.Context(), scope, 0, int64(next), slices.Values(rows)); err != nil {
					r.Fatal(err)
				}
			}
			from = next
		}
	})
}

func entriesOf(records []record) func(func(idempotency.Entry) bool) {
	return func(yield func(idempotency.Entry) bool) {
		for _, r := range records {
			if !yield(r.Entry) {
				return
			}
		}
	}
}
