package recordbatch

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"sluice/connector"
)

// budget is a Memory of size bytes. It overwrites each buffer that it gets back, so that a later use of it is noticed.
type budget struct {
	t          *testing.T
	size, used int
	lent       int
	waits      int // number of Lend calls that were allowed to wait
	refuse     int // number of calls of Lend after which all further calls fail with ErrNoRoom; 0 for never
}

func (m *budget) Lend(n, held int, may bool) ([]byte, error) {
	if held > m.used {
		m.t.Errorf("%d held, %d used", held, m.used)
	}
	if may {
		m.waits++
	}
	if m.refuse > 0 {
		if m.refuse--; m.refuse == 0 {
			m.refuse = 1
			return nil, ErrNoRoom
		}
	}
	switch {
	case held+n > m.size:
		return nil, ErrNeverRoom
	case m.used+n > m.size:
		return nil, ErrNoRoom
	}
	m.used += n
	m.lent++
	return make([]byte, 0, n), nil
}

func (m *budget) Max(held int) int { return m.size - held }

func (m *budget) Return(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xDB
	}
	if m.used -= len(b); m.used < 0 {
		m.t.Error("more came back than was lent")
	}
}

// TestBudget: random logs are read within small budgets. A batch for which one result has no room comes in the next
// result. The records are the same as without a budget, and all buffers are returned.
func TestBudget(t *testing.T) {
	var refused, later int
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 2))
		log, aborted := randomLog(rnd)
		raw, from := concat(log...), log[0].base
		all, err := NewOpener(Limits{}, nil).Open(raw, from, append([]Aborted(nil), aborted...))
		if err != nil {
			t.Fatal(err)
		}
		want := readAll(t, all, 50)
		m := &budget{t: t, size: 1 << (10 + rnd.IntN(12))}
		o := NewOpener(Limits{}, m)
		var got []connector.Record
		var held []*Batches
		next := from
		for next < all.Next {
			m.refuse = rnd.IntN(4)
			b, err := o.Open(raw[offsetOf(log, next):], next, append([]Aborted(nil), abortedFrom(log, aborted, next)...))
			switch {
			case errors.Is(err, ErrNoRoom):
				later++
				for _, h := range held {
					h.Release()
				}
				held = nil
				continue
			case errors.Is(err, ErrNeverRoom):
				refused++
				if m.size *= 2; m.size > 64<<20 {
					t.Fatalf("seed %d: never room", seed)
				}
				continue
			case err != nil:
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, r := range readAll(t, b, 1+rnd.IntN(50)) {
				r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
				for i := range r.Headers {
					r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
				}
				got = append(got, r)
			}
			if next = b.Next; rnd.IntN(2) == 0 {
				b.Release()
			} else {
				held = append(held, b)
			}
		}
		for _, h := range held {
			h.Release()
		}
		if len(got) != len(want) || m.used != 0 {
			t.Fatalf("seed %d: %d records of %d, %d bytes not returned", seed, len(got), len(want), m.used)
		}
		for i := range want {
			if !sameRecord(want[i], got[i]) {
				t.Fatalf("seed %d: record %d differs", seed, i)
			}
		}
	}
	if refused == 0 || later == 0 {
		t.Errorf("refused %d, later %d: nothing was tight", refused, later)
	}
}

// offsetOf returns where the batch that contains an offset begins in the encoded log.
func offsetOf(log []*spec, next int64) (at int) {
	for _, s := range log {
		if s.base+int64(s.delta) >= next {
			break
		}
		at += len(s.encode())
	}
	return at
}

// abortedFrom returns the aborted transactions that a broker would name in a fetch from next on: those that end at or
// after next.
func abortedFrom(log []*spec, aborted []Aborted, next int64) (left []Aborted) {
	for _, a := range aborted {
		for _, s := range log {
			if s.attrs&attrControl != 0 && s.producer == a.Producer && s.base > a.First {
				if s.base+int64(s.delta) >= next {
					left = append(left, a)
				}
				break
			}
		}
	}
	return left
}

// TestBombInABudget: if a batch decompresses to a hundred times its size, its memory never exceeds the budget, and all
// memory is returned.
func TestBombInABudget(t *testing.T) {
	for codec := codecGzip; codec <= codecZstd; codec++ {
		value := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz-0123456789abcdefghijklmnopqrstuvwxyz"), 6<<20/72)
		raw := (&spec{base: 7, attrs: uint16(codec), records: []testRecord{{value: value}}}).encode()
		m := &budget{t: t, size: 3 << 20}
		b, err := NewOpener(Limits{}, m).Open(raw, 7, nil)
		if !errors.Is(err, ErrNeverRoom) || b.Next != 7 || m.used != 0 || m.waits == 0 {
			t.Errorf("%s: next %d, %d used, %d waits: %v", codecNames[codec], b.Next, m.used, m.waits, err)
		}
		// If nothing else uses the budget, the batch may take all of it.
		m = &budget{t: t, size: len(value) + 100}
		if b, err = NewOpener(Limits{Floor: 64 << 20}, m).Open(raw, 7, nil); err != nil || b.Count != 1 {
			t.Errorf("%s: %v", codecNames[codec], err)
			continue
		}
		if b.Release(); m.used != 0 {
			t.Errorf("%s: %d bytes not returned", codecNames[codec], m.used)
		}
	}
}
