package decode

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// hostile has functions that make records of size n on which careless parsers take quadratic time or memory.
var hostile = map[string]func(n int) string{
	"nested objects":    func(n int) string { return strings.Repeat(`{"x":`, n) },
	"nested lists":      func(n int) string { return `{"u":` + strings.Repeat(`[`, n) },
	"objects in a list": func(n int) string { return `{"u":[` + strings.Repeat("{},", n) + "{}]}" },
	"many names":        func(n int) string { return "{" + names(n) + `"z":0}` },
	"many names in a list": func(n int) string {
		return `{"u":[` + strings.Repeat(`{"a":1,"b":2},`, n) + `{` + names(n) + `"z":0}]}`
	},
	"many digits":      func(n int) string { return `{"f":` + strings.Repeat("1", n) + `}` },
	"many zeros":       func(n int) string { return `{"f":0.` + strings.Repeat("0", n) + `1}` },
	"long exponent":    func(n int) string { return `{"u":1e` + strings.Repeat("9", n) + `}` },
	"long integer":     func(n int) string { return `{"i":` + strings.Repeat("9", n) + `}` },
	"escapes":          func(n int) string { return `{"s":"` + strings.Repeat(`\u00e9`, n) + `"}` },
	"escaped strings":  func(n int) string { return `{"ls":[` + strings.Repeat(`"\n",`, n) + `"x"]}` },
	"escaped names":    func(n int) string { return `{` + strings.ReplaceAll(names(n), "k", `\u006b`) + `"z":0}` },
	"distinct strings": func(n int) string { return `{"ls":[` + strings.ReplaceAll(names(n), ":0", "") + `"z"]}` },
	"white space":      func(n int) string { return strings.Repeat(" \n", n) + `{}` },
	"long fraction":    func(n int) string { return `{"t":"2026-01-01T00:00:00.` + strings.Repeat("0", n) + `Z"}` },
	"truncated text":   func(n int) string { return `{"s":"` + strings.Repeat(`é`, n) },
}

func names(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	return b.String()
}

// TestHostile: the decoder accepts or refuses each hostile record as the oracle does, and its allocations grow no
// faster than the record. A parser that copies its input repeatedly, which takes quadratic time, would fail here.
func TestHostile(t *testing.T) {
	s := parse(t, "s string, i bigint, f double, t timestamp, ls array<string>")
	for name, shape := range hostile {
		t.Run(name, func(t *testing.T) {
			checkRecord(t, s, JSON{}, maxDistinct, []byte(shape(3000)))
			const n = 20_000
			small, large := allocated(t, []byte(shape(n))), allocated(t, []byte(shape(8*n)))
			if large > 16*small+1<<20 {
				t.Errorf("8 times the size allocates %d instead of %d bytes", large, small)
			}
		})
	}
}

// allocated returns the bytes that a new decoder allocates while it decodes one record.
func allocated(t *testing.T, record []byte) uint64 {
	t.Helper()
	d := open(t, parse(t, "s string, i bigint, f double, t timestamp, ls array<string>"), JSON{}, maxDistinct)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := d.addValue(record); err == nil {
		d.Seal()
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestNames_ConstantTime: with 100,000 names in a record, names lie on average at most two steps from the slots of
// their hashes, and a repeated name is found.
func TestNames_ConstantTime(t *testing.T) {
	d := open(t, parse(t, "s string"), JSON{}, maxDistinct)
	const n = 100_000
	if err := d.addValue([]byte("{" + names(n) + `"k99999":1}`)); err == nil {
		t.Fatal("a repeated name was not found")
	}
	if len(d.names.names) != n || 2*len(d.names.names) > len(d.names.table) {
		t.Fatalf("%d names in a table of %d", len(d.names.names), len(d.names.table))
	}
	steps := 0
	for _, seen := range d.names.names {
		for at := d.names.home(seen.hash); at != seen.slot; at = d.names.next(at) {
			steps++
		}
	}
	if steps > 2*n {
		t.Errorf("%d steps for %d names", steps, n)
	}
}

// TestMemory_ReleasedAfterLargeRecord: the decoder does not keep the memory that one large record needed.
func TestMemory_ReleasedAfterLargeRecord(t *testing.T) {
	d := open(t, parse(t, "s string"), JSON{}, maxDistinct)
	for _, record := range []string{
		"{" + names(5000) + `"s":"x"}`,
		`{"` + strings.Repeat("n", 100_000) + `":0}`,
		`{"u":"` + strings.Repeat(`\n`, 2<<20) + `"}`,
		`{}`,
	} {
		if err := d.addValue([]byte(record)); err != nil {
			t.Fatal(err)
		}
		if d.record != nil {
			t.Fatal("the record is held, and the fetch with it")
		}
	}
	d.Seal()
	held := cap(d.copied) + cap(d.scratch)
	for _, n := range d.names.names[:cap(d.names.names)] {
		held += cap(n.text) + 40
	}
	if held > 100_000 {
		t.Errorf("%d bytes held", held)
	}
}
