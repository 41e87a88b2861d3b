package scan_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/connector/schema"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// counted is a store that records which data files are read, with how many requests and bytes.
type counted struct {
	objstore.Store
	mu    sync.Mutex
	files []string
	gets  int
	bytes int64
}

func (c *counted) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if !strings.HasPrefix(key, deltalog.Dir) {
		c.mu.Lock()
		c.gets++
		c.bytes += n
		if len(c.files) == 0 || c.files[len(c.files)-1] != key {
			c.files = append(c.files, key)
		}
		c.mu.Unlock()
	}
	return c.Store.Get(ctx, key, off, n)
}

// records returns n rows of a partition with the offsets [from, from+n) and timestamps a millisecond apart.
func records(partition int32, from int64, n int, text string) []row {
	rows := make([]row, n)
	for i := range rows {
		o := from + int64(i)
		rows[i] = row{id: int64(partition)<<32 + o, topic: "orders", partition: partition, offset: o, at: o*1000 + 1, text: text}
	}
	return rows
}

func TestFilesArePassedOver(t *testing.T) {
	store := &counted{Store: objstore.NewMem()}
	l := newLake(t, t.Context(), store, tableSchema(t))
	names := map[string]string{}
	add := func(name string, a deltalog.Add) {
		names[deltalog.Key(a.Path)] = name
		l.commit(a)
	}
	add("0:0-10", l.write(records(0, 0, 10, "x")))
	add("1:0-10", l.write(records(1, 0, 10, "x")))
	l.checkpoint()
	add("0:10-20", l.write(records(0, 10, 10, "x")))
	mixed := l.write(records(0, 20, 10, "x"), records(2, 20, 10, "x"))
	add("0,2:20-30", mixed)
	bare := l.write(records(3, 100, 10, "x"))
	bare.Stats = ""
	add("no statistics", bare)
	odd := l.write(records(3, 200, 10, "x"))
	odd.Stats = `{"minValues":{"_kafka_partition":"three","_kafka_topic":null},"maxValues":{"_kafka_offset":1.5,"_kafka_timestamp":7}}`
	add("odd statistics", odd)

	for _, c := range []struct {
		name string
		q    scan.Query
		want string
	}{
		{"everything", scan.Query{}, "0:0-10 1:0-10 0:10-20 0,2:20-30 no statistics odd statistics"},
		{"one partition", scan.Query{Where: []scan.Where{{"orders", 1, 0, 1000}}}, "1:0-10 0,2:20-30 no statistics odd statistics"},
		{"its end", scan.Query{Where: []scan.Where{{"orders", 0, 10, 11}}}, "0:10-20 no statistics odd statistics"},
		{"before and after", scan.Query{Where: []scan.Where{{"orders", 0, 9, 10}, {"orders", 0, 20, 21}}}, "0:0-10 0,2:20-30 no statistics odd statistics"},
		{"no offsets", scan.Query{Where: []scan.Where{{"orders", 0, 10, 10}}}, ""},
		{"another topic", scan.Query{Where: []scan.Where{{"order", 0, 0, 1000}}}, "no statistics odd statistics"},
		{"since", scan.Query{Since: time.UnixMilli(20)}, "0:10-20 0,2:20-30 no statistics odd statistics"},
	} {
		store.files = nil
		if _, _, err := run(t.Context(), store, l.state(), c.q); err != nil {
			t.Fatal(err)
		}
		got := make([]string, len(store.files))
		for i, f := range store.files {
			got[i] = names[f]
		}
		if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestColumnsAndGroupsArePassedOver: a scan of a large file reads only the footer and the wanted columns of the wanted
// row groups, in few requests.
func TestColumnsAndGroupsArePassedOver(t *testing.T) {
	store := &counted{Store: objstore.NewMem()}
	l := newLake(t, t.Context(), store, tableSchema(t))
	const groups, each = 40, 400
	var parts [][]row
	for g := range groups {
		rows := records(0, int64(g*each), each, "")
		for i := range rows {
			rows[i].text = noise(g*each+i, 600)
		}
		parts = append(parts, rows)
	}
	file := l.write(parts...)
	l.commit(file)
	read := func(q scan.Query) int64 {
		t.Helper()
		store.gets, store.bytes = 0, 0
		var rows int64
		err := scan.Run(t.Context(), store, l.state(), q, func(r scan.Rows) error { rows += r.Batch.NumRows(); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	offsets := [][]string{{schema.KafkaPartition}, {schema.KafkaOffset}}
	if n := read(scan.Query{Columns: offsets}); n != groups*each || store.bytes > file.Size/10 || store.gets > 1+groups {
		t.Errorf("two columns: %d rows, %d of %d bytes, %d requests", n, store.bytes, file.Size, store.gets)
	}
	one := []scan.Where{{"orders", 0, 3*each + 1, 3*each + 2}}
	if n := read(scan.Query{Columns: [][]string{{"text"}}, Where: one}); n != each || store.bytes > 256<<10+2*file.Size/groups || store.gets != 2 {
		t.Errorf("one row group: %d rows, %d of %d bytes, %d requests", n, store.bytes, file.Size, store.gets)
	}
	if n := read(scan.Query{Columns: [][]string{{"text"}}, Since: time.UnixMilli((groups - 2) * each)}); n != 2*each {
		t.Errorf("since: %d rows", n)
	}
}

// noise returns a text of n bytes that does not compress.
func noise(seed, n int) string {
	x := uint64(seed)*0x9E3779B97F4A7C15 + 1
	b := make([]byte, 0, n+16)
	for len(b) < n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = fmt.Appendf(b, "%016x", x)
	}
	return string(b[:n])
}

// TestEachEndsTheScan: after each has returned an error, Run returns that error unchanged. each is called at most once
// per parallel reader.
func TestEachEndsTheScan(t *testing.T) {
	for _, parallel := range []int{1, 3} {
		l := newLake(t, t.Context(), objstore.NewMem(), tableSchema(t))
		for i := range 20 {
			l.commit(l.write(records(0, int64(i), 1, "x")))
		}
		enough, calls := fmt.Errorf("enough"), 0
		err := scan.Run(t.Context(), l.store, l.state(), scan.Query{Columns: all(), Parallel: parallel}, func(scan.Rows) error {
			calls++
			return enough
		})
		if err != enough || calls > parallel { //nolint:errorlint // it must be this very one
			t.Errorf("%v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = scan.Run(ctx, l.store, l.state(), scan.Query{Columns: all(), Parallel: parallel}, func(scan.Rows) error { cancel(); return nil })
		if err == nil {
			t.Error("a canceled scan says that it is whole")
		}
	}
}
