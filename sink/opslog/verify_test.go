package opslog_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// written returns a store with a log of n entries, and its head.
func written(t *testing.T, n int) (*objstore.Mem, opslog.Head) {
	t.Helper()
	mem := objstore.NewMem()
	l, head := open(mem), opslog.Head{}
	for i := range n {
		head = add(t, l, pause(fmt.Sprint("reason ", i), opslog.Topic("orders"))).Head()
	}
	return mem, head
}

// finds fails the test unless the first finding of Verify has this seq and reason, and a reader of the chain stops at
// that seq or does not notice the defect.
func finds(t *testing.T, store objstore.Store, pinned opslog.Head, seq int64, why string) {
	t.Helper()
	r := verify(t, store, pinned)
	if len(r.Findings) == 0 || r.Findings[0].Seq != seq || !strings.Contains(r.Findings[0].Why, why) {
		t.Errorf("found %+v, want seq %d: %s", r.Findings, seq, why)
	}
}

// TestVerify_ChangedByte: if any byte of an entry is changed, also in the newest entry, Verify names the entry, and a
// reader of the chain returns a BrokenError.
func TestVerify_ChangedByte(t *testing.T) {
	mem, head := written(t, 4)
	for seq := int64(1); seq <= head.Seq; seq++ {
		good := get(t, mem, key(seq))
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			put(t, mem, key(seq), bad)
			r := verify(t, mem, opslog.Head{})
			if len(r.Findings) == 0 || r.Findings[0].Seq != seq {
				t.Fatalf("byte %d of seq %d changed, found %+v", i, seq, r.Findings)
			}
			if _, err := open(mem).State(t.Context()); !isBroken(err, seq) {
				t.Fatalf("byte %d of seq %d changed, the state is read with %v", i, seq, err)
			}
		}
		put(t, mem, key(seq), good[:len(good)/2])
		finds(t, mem, opslog.Head{}, seq, "sum")
		put(t, mem, key(seq), good)
	}
	if r := verify(t, mem, head); len(r.Findings) > 0 {
		t.Errorf("%+v", r)
	}
}

func isBroken(err error, seq int64) bool {
	b := (*opslog.BrokenError)(nil)
	return errors.As(err, &b) && b.Seq == seq
}

// forge changes text in an entry and corrects its checksum, as an attacker who knows the format would.
func forge(t *testing.T, store objstore.Store, seq int64, from, to string) {
	t.Helper()
	text := string(get(t, store, key(seq)))
	if !strings.Contains(text, from) {
		t.Fatalf("no %q in %s", from, text)
	}
	text, _, _ = strings.Cut(strings.Replace(text, from, to, 1), `,"sum"`)
	sum := sha256.Sum256([]byte(text))
	put(t, store, key(seq), []byte(text+`,"sum":"`+hex.EncodeToString(sum[:])+"\"}\n"))
}

func TestVerify_RewrittenEntry(t *testing.T) {
	for seq := int64(1); seq <= 5; seq++ {
		mem, head := written(t, 5)
		forge(t, mem, seq, fmt.Sprint("reason ", seq-1), "forged")
		finds(t, mem, head, seq, "written anew")
		if seq < 5 {
			finds(t, mem, opslog.Head{}, seq, "written anew")
			if _, err := open(mem).State(t.Context()); !isBroken(err, seq) {
				t.Errorf("seq %d: %v", seq, err)
			}
			if _, err := open(mem).Append(t.Context(), pause("r", opslog.All()), nil); !isBroken(err, seq) {
				t.Errorf("seq %d: appended to a broken log: %v", seq, err)
			}
		} else if r := verify(t, mem, opslog.Head{}); len(r.Findings) > 0 {
			t.Errorf("without a head nobody can know, found %+v", r)
		}
		if seq == 1 {
			continue
		}
		mem, _ = written(t, 5)
		e := entries(t, mem)[seq-1]
		forge(t, mem, seq, e.Prev, strings.Repeat("0", 64))
		want := seq
		if seq == 5 {
			want = 4 // if only the last two entries disagree, either may be the forged one
		}
		finds(t, mem, opslog.Head{}, want, "written anew")
	}
}

func TestVerify_MissingEntry(t *testing.T) {
	for seq := int64(1); seq <= 4; seq++ {
		mem, head := written(t, 5)
		if err := mem.Delete(t.Context(), key(seq)); err != nil {
			t.Fatal(err)
		}
		finds(t, mem, opslog.Head{}, seq, "missing")
		if _, err := open(mem).State(t.Context()); !isBroken(err, seq) {
			t.Errorf("%v", err)
		}
		var seqs []int64
		for e, err := range open(mem).Entries(t.Context(), 1) {
			if (err != nil) != (e.Seq == seq) || err != nil && !isBroken(err, seq) {
				t.Errorf("entry %+v %v", e, err)
			}
			seqs = append(seqs, e.Seq)
		}
		if len(seqs) != 5 {
			t.Errorf("read %v, want all five", seqs)
		}
		for later := seq; later < 5; later++ {
			if err := mem.Delete(t.Context(), key(later)); err != nil {
				t.Fatal(err)
			}
		}
		finds(t, mem, head, seq, "missing")
	}
	// The newest entries were deleted: Verify finds that only with a head that was kept before.
	mem, head := written(t, 5)
	for _, seq := range []int64{4, 5} {
		if err := mem.Delete(t.Context(), key(seq)); err != nil {
			t.Fatal(err)
		}
	}
	finds(t, mem, head, 4, "cut off")
	if r := verify(t, mem, opslog.Head{}); len(r.Findings) > 0 || r.Head.Seq != 3 {
		t.Errorf("%+v", r)
	}
}

func TestVerify_ForeignObject(t *testing.T) {
	mem, _ := written(t, 3)
	one := get(t, mem, key(1))
	put(t, mem, folder+"00-notes.txt", one)
	put(t, mem, key(2)+".bak", one)
	put(t, mem, "_sluice/other/ops/00000000000000000009.json", one)
	r := verify(t, mem, opslog.Head{})
	if len(r.Findings) != 2 || r.Findings[0].Key != folder+"00-notes.txt" || r.Findings[1].Key != key(2)+".bak" {
		t.Errorf("%+v", r.Findings)
	}
	if s, err := open(mem).State(t.Context()); err != nil || s.Head().Seq != 3 {
		t.Errorf("members read on: %+v %v", s, err)
	}
	// Verify finds an entry at the wrong seq, an object at a far seq, and an object that is too large.
	put(t, mem, key(4), one)
	finds(t, mem, opslog.Head{}, 0, "belong")
	put(t, mem, folder+"00-notes.txt", nil)
	mem2, _ := written(t, 3)
	put(t, mem2, key(4), one)
	finds(t, mem2, opslog.Head{}, 4, "seq 1")
	mem3, _ := written(t, 3)
	put(t, mem3, key(1<<50), one)
	finds(t, mem3, opslog.Head{}, 4, "up to seq 1125899906842623")
	if _, err := open(mem3).State(t.Context()); !isBroken(err, 4) {
		t.Errorf("%v", err)
	}
	mem4, _ := written(t, 3)
	put(t, mem4, key(2), bytes.Repeat([]byte(" "), opslog.MaxEntry+1))
	finds(t, mem4, opslog.Head{}, 2, "larger")
}

// TestVerify_FarSeq: a foreign object with a far greater seq is one finding. Verify sends no request for the seqs
// before it.
func TestVerify_FarSeq(t *testing.T) {
	mem, _ := written(t, 3)
	put(t, mem, key(1<<52), get(t, mem, key(2)))
	put(t, mem, key(1<<52+1), get(t, mem, key(2)))
	finds(t, mem, opslog.Head{}, 4, "all up to seq 4503599627370495")
	var bad []string
	good := 0
	for e, err := range open(mem).Entries(t.Context(), 1) {
		if err != nil {
			bad = append(bad, fmt.Sprint(e.Seq, " ", err))
			continue
		}
		good++
	}
	if good != 3 || len(bad) != 3 || !strings.Contains(bad[0], "seq 4: it is missing, and so are all up to") || !strings.Contains(bad[1], "it says that it is seq 2") {
		t.Errorf("%d entries, and %q", good, bad)
	}
	if _, err := open(mem).State(t.Context()); !isBroken(err, 4) {
		t.Errorf("the state is read with %v", err)
	}
}

// TestVerify_AbsurdSeq: an object with an absurd seq is a finding that names it. It affects neither members nor the
// search for changed entries.
func TestVerify_AbsurdSeq(t *testing.T) {
	for _, name := range []string{"09223372036854775807.json", "09223372036854775806.json", "99999999999999999999.json", "00009007199254740992.json"} {
		for _, entries := range []int{0, 3} {
			mem, head := written(t, entries)
			put(t, mem, folder+name, []byte("x"))
			r := verify(t, mem, head)
			if len(r.Findings) != 1 || r.Findings[0].Key != folder+name || r.Entries != int64(entries) || r.Head != head {
				t.Errorf("%s: %+v", name, r)
			}
			if s, err := open(mem).State(t.Context()); err != nil || s.Head() != head {
				t.Errorf("%s: members read %+v, %v", name, s, err)
			}
			for e, err := range open(mem).Entries(t.Context(), 1) {
				if err != nil {
					t.Errorf("%s: entry %d: %v", name, e.Seq, err)
				}
			}
			add(t, open(mem), pause("goes on", opslog.All()))
			if entries == 0 {
				continue
			}
			forged := get(t, mem, key(2))
			forged[20] ^= 1
			put(t, mem, key(2), forged)
			r = verify(t, mem, opslog.Head{})
			if len(r.Findings) != 2 || r.Findings[0].Key != folder+name || r.Findings[1].Seq != 2 {
				t.Errorf("%s hides a changed entry: %+v", name, r.Findings)
			}
		}
	}
}

// TestVerify_ManyForeignObjects: if the log has very many foreign objects, the report names some of them and gives the
// number of those that it leaves out.
func TestVerify_ManyForeignObjects(t *testing.T) {
	mem, head := written(t, 2)
	for i := range 1010 {
		put(t, mem, fmt.Sprintf("%sx%04d", folder, i), nil)
	}
	r := verify(t, mem, head)
	if n := len(r.Findings); n != 1001 || r.Findings[n-1] != (opslog.Finding{Key: folder, Why: "10 more objects are no entries and do not belong there"}) {
		t.Errorf("%d findings, the last one %+v", n, r.Findings[n-1])
	}
}
