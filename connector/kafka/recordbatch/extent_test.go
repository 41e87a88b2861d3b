package recordbatch

import (
	"slices"
	"testing"

	"sluice/reliability/hold"
)

func TestExtentOf(t *testing.T) {
	first := (&spec{base: 10, records: []testRecord{{offset: 0, value: []byte("a")}, {offset: 4, value: []byte("b")}}}).encode()
	second := (&spec{base: 15, records: []testRecord{{offset: 0, value: []byte("c")}}}).encode()
	far := (&spec{base: 100, records: []testRecord{{offset: 0, value: []byte("c")}}}).encode()
	edit := func(b []byte, at int, v ...byte) []byte {
		b = slices.Clone(b)
		copy(b[at:], v)
		return b
	}
	// A message of format v1 has an offset, a size, a checksum and the magic byte. A compressed message has the offset
	// of its last record.
	old := append(be.AppendUint32(be.AppendUint64(nil, 14), 20), make([]byte, 20)...)
	old[16] = 1
	for name, c := range map[string]struct {
		raw  []byte
		at   int64
		want Extent
		ok   bool
	}{
		"alone":                             {first, 10, Extent{10, 14, len(first)}, true},
		"from inside it":                    {first, 12, Extent{10, 14, len(first)}, true},
		"another follows":                   {slices.Concat(first, second), 10, Extent{10, 14, len(first)}, true},
		"compaction left a hole":            {slices.Concat(first, far), 12, Extent{10, 14, len(first)}, true},
		"it claims what the next is":        {slices.Concat(edit(first, 23, 0, 0, 0, 90), second), 10, Extent{10, 14, len(first)}, true},
		"it ends before what was asked for": {edit(first, 23, 0, 0, 0, 0), 13, Extent{10, 13, len(first)}, true},
		"only its start":                    {first[:headerLen+1], 10, Extent{10, 14, len(first)}, true},
		"an old format":                     {old, 11, Extent{11, 14, 32}, true},
		"too short":                         {first[:16], 10, Extent{}, false},
		"a negative base":                   {edit(first, 0, 0xff), 10, Extent{}, false},
		"a negative number of offsets":      {edit(first, 23, 0xff), 10, Extent{}, false},
		"no size":                           {edit(first, 8, 0xff), 10, Extent{}, false},
	} {
		got, err := ExtentOf(c.raw, c.at)
		if got != c.want || (err == nil) != c.ok || err != nil && reasonOf(err) != hold.CorruptBatch {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	if err := Readable(first, Extent{10, 14, len(first)}, Limits{}, nil); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		raw    []byte
		limits Limits
		memory Memory
		want   hold.Reason
	}{
		"a flipped bit": {edit(first, len(first)-1, first[len(first)-1]^1), Limits{}, nil, hold.CorruptBatch},
		"a part of it":  {first[:len(first)-1], Limits{}, nil, hold.Oversize},
		"a bomb": {
			(&spec{attrs: codecZstd, records: []testRecord{{value: make([]byte, 1<<20)}}}).encode(), Limits{Batch: 1 << 18}, nil, hold.Oversize,
		},
		"a bomb in little memory": {
			(&spec{attrs: codecZstd, records: []testRecord{{value: make([]byte, 1<<20)}}}).encode(), Limits{}, Bounded(1 << 19), hold.Oversize,
		},
	} {
		e, err := ExtentOf(c.raw, 10)
		if err != nil {
			t.Fatal(name, err)
		}
		if err := Readable(c.raw, e, c.limits, c.memory); reasonOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// FuzzExtent: for any bytes, an extent that ExtentOf returns contains the requested offset.
func FuzzExtent(f *testing.F) {
	b := (&spec{base: 10, records: []testRecord{{value: []byte("a")}, {offset: 4, value: []byte("b")}}}).encode()
	f.Add(b, int64(12))
	f.Add(slices.Concat(b, b), int64(10))
	f.Fuzz(func(t *testing.T, raw []byte, at int64) {
		if at < 0 || at == 1<<63-1 {
			return
		}
		e, err := ExtentOf(raw, at)
		if err != nil {
			return
		}
		if e.Last < at || e.Base > e.Last || e.Size <= 16 {
			t.Fatalf("%+v for offset %d", e, at)
		}
		_ = Readable(raw, e, Limits{Batch: 1 << 20, Floor: 1 << 18, Response: 1 << 20}, nil)
	})
}
