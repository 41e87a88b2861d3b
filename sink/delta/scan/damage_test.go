package scan_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"sluice/connector"
	"sluice/sink/delta/datafile"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

func TestMissingFile(t *testing.T) {
	l := newLake(t, t.Context(), objstore.NewMem(), tableSchema(t))
	a := l.write(records(0, 0, 3, "x"))
	l.commit(a)
	l.must(l.store.Delete(t.Context(), deltalog.Key(a.Path)))
	_, _, err := run(t.Context(), l.store, l.state(), scan.Query{})
	refused(t, err, a.Path)
	if !errors.Is(err, scan.ErrVanished) || errors.Is(err, scan.ErrUnsound) {
		t.Error(err)
	}
}

// TestDamagedFile: a scan of a data file that was truncated, or that has one changed byte, returns ErrUnsound or
// succeeds. It must not panic. A scan of a truncated file always returns ErrUnsound.
func TestDamagedFile(t *testing.T) {
	l := newLake(t, t.Context(), objstore.NewMem(), tableSchema(t))
	a := l.write(records(0, 0, 50, "x"), records(1, 0, 50, "y"))
	key := deltalog.Key(a.Path)
	r, err := l.store.Get(t.Context(), key, 0, -1)
	l.must(err)
	whole, err := io.ReadAll(r)
	l.must(err)
	l.commit(a)
	replace := func(body []byte) error {
		t.Helper()
		l.must(l.store.Put(t.Context(), key, bytes.NewReader(body), objstore.Replace))
		_, _, err := run(t.Context(), l.store, l.state(), scan.Query{})
		if err != nil {
			refused(t, err, a.Path)
			if !errors.Is(err, scan.ErrUnsound) {
				t.Error(err)
			}
		}
		return err
	}
	if err := replace(whole); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 1, 8, len(whole) / 2, len(whole) - 1} {
		if replace(whole[:cut]) == nil {
			t.Errorf("a file cut at %d of %d bytes is read", cut, len(whole))
		}
	}
	found := 0
	step := 1
	if testing.Short() {
		step = 29
	}
	for i := 0; i < len(whole); i += step {
		body := bytes.Clone(whole)
		body[i] ^= 0x55
		if replace(body) != nil {
			found++
		}
	}
	if found < len(whole)/step/4 {
		t.Errorf("%d of %d damages are noticed", found, len(whole))
	}
}

// TestMemoryIsBounded: a table of large values is read in small pieces within little memory. A file that needs more
// memory is refused. The allocator, which all pages and rows come from, fails the test if the bound is exceeded.
func TestMemoryIsBounded(t *testing.T) {
	l := newLake(t, t.Context(), objstore.NewMem(), tableSchema(t))
	var rows []row
	for i := range 300 {
		rows = append(rows, row{id: int64(i), topic: "orders", partition: 0, offset: int64(i), at: 1, text: strings.Repeat(fmt.Sprint(i%3), 64<<10)})
	}
	l.commit(l.write(rows))
	const limit = 2 << 20
	var most int64
	seen := 0
	err := scan.Run(t.Context(), l.store, l.state(), scan.Query{Columns: all(), Bytes: limit}, func(r scan.Rows) error {
		var size int64
		for _, c := range r.Batch.Columns() {
			size += int64(c.Data().SizeInBytes())
		}
		most = max(most, size)
		for _, got := range rowsOf(r.Batch) {
			if got != rows[seen] {
				return fmt.Errorf("row %d is another", seen)
			}
			seen++
		}
		return nil
	})
	if err != nil || seen != len(rows) {
		t.Fatalf("%d rows: %v", seen, err)
	}
	if most > limit/2 {
		t.Errorf("a piece of %d bytes", most)
	}
	l.commit(l.write([]row{{id: 1, text: noise(1, 8<<20)}}))
	_, _, err = run(t.Context(), l.store, l.state(), scan.Query{Bytes: limit})
	refused(t, err, "limit")
	if _, _, err = run(t.Context(), l.store, l.state(), scan.Query{Bytes: 64 << 20}); err != nil {
		t.Error(err)
	}
}

func BenchmarkScan(b *testing.B) {
	const files, groups, each = 10, 16, 62_500 // ten million rows in all
	l := newLake(b, b.Context(), objstore.NewMem(), tableSchema(b))
	for f := range files {
		var pieces []connector.Piece
		for g := range groups {
			batch := batchOf(l.schema, records(int32(g%4), int64(f*groups+g)*each, each, "0123456789abcdef"))
			pieces = append(pieces, connector.Piece{Rows: batch, To: each})
		}
		var adds []deltalog.Action
		l.must(datafile.Encode(b.Context(), l.schema.Arrow(), pieces, datafile.Options{}, func(f datafile.File) error {
			body, err := io.ReadAll(f.Body)
			adds = append(adds, l.put(body, f.Stats))
			return err
		}))
		l.commit(adds...)
	}
	state := l.state()
	for _, parallel := range []int{1, 2} {
		b.Run(fmt.Sprint("parallel=", parallel), func(b *testing.B) {
			for b.Loop() {
				var rows int64
				q := scan.Query{Columns: all()[1:5], Parallel: parallel}
				l.must(scan.Run(b.Context(), l.store, state, q, func(r scan.Rows) error { rows += r.Batch.NumRows(); return nil }))
				if rows != files*groups*each {
					b.Fatal(rows)
				}
			}
			b.ReportMetric(float64(files*groups*each)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// FuzzFile scans any bytes as a data file. The scan may return an error, but must not panic.
func FuzzFile(f *testing.F) {
	l := newLake(f, f.Context(), objstore.NewMem(), tableSchema(f))
	for _, rows := range [][]row{records(0, 0, 1, ""), records(0, 0, 40, "text"), {{id: 1, partition: -1, offset: -1}}} {
		a := l.write(rows)
		r, err := l.store.Get(f.Context(), deltalog.Key(a.Path), 0, -1)
		l.must(err)
		body, err := io.ReadAll(r)
		l.must(err)
		f.Add(body, a.Stats)
	}
	f.Fuzz(func(t *testing.T, body []byte, stats string) {
		l := newLake(t, t.Context(), objstore.NewMem(), tableSchema(t))
		l.commit(l.put(body, stats))
		for _, q := range []scan.Query{{Bytes: 4 << 20}, {Bytes: 4 << 20, Where: []scan.Where{{Topic: "orders", Partition: 0, From: 0, Next: 1}}}} {
			if _, _, err := run(t.Context(), l.store, l.state(), q); err != nil {
				refused(t, err, "")
			}
		}
	})
}
