package decode

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/connector"
	"sluice/connector/decode/decodetest"
	"sluice/connector/schema"
)

// growing is a table whose rows come from a decoder that makes columns. Builders know the schema of lag commits ago.
type growing struct {
	t       *testing.T
	decoder JSON
	schemas []*schema.Schema
	now     time.Time
	full    bool
	rescued []string // the texts of the last commit
}

func newGrowing(t *testing.T, ddl string, bounds schema.NewColumns) *growing {
	t.Helper()
	g := &growing{t: t, decoder: JSON{NewColumns: &bounds}, now: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)}
	s := (&schema.Schema{}).WithKafkaColumns()
	if ddl != "" {
		s = parse(t, ddl)
		g.decoder.Declared = s
	}
	g.schemas = []*schema.Schema{s}
	return g
}

func (g *growing) schema() *schema.Schema { return g.schemas[len(g.schemas)-1] }

// commit makes chunks of records, each built for the schema of lag commits ago, and commits them. It returns the records
// as the rows have them.
func (g *growing) commit(lag int, chunks ...[]string) (back []string) {
	g.t.Helper()
	var pieces []connector.Piece
	for i, records := range chunks {
		at := max(len(g.schemas)-1-lag*(i%2), 0)
		d := open(g.t, g.schemas[at], g.decoder, maxDistinct)
		for _, r := range records {
			if err := d.addValue([]byte(r)); err != nil {
				g.t.Fatalf("%s: %v", r, err)
			}
		}
		if rows := d.Seal(); rows != nil {
			pieces = append(pieces, connector.Piece{Rows: rows, To: rows.NumRows()})
		}
	}
	grown, err := g.decoder.Grow(g.schema(), pieces, g.now)
	if err != nil {
		g.t.Fatal(err)
	}
	g.full, g.rescued = grown.Full, nil
	next := grown.Schema.(*schema.Schema)
	for _, p := range pieces {
		rows := p.Rows
		if grown.Fit != nil {
			if rows, err = grown.Fit(rows); err != nil {
				g.t.Fatal(err)
			}
		}
		if !covers(next.Arrow().Fields(), rows.Schema().Fields()) {
			g.t.Fatalf("rows have %v, the schema is %s", rows.Schema(), next.DDL())
		}
		records, err := decodetest.ReadBack(next, rows)
		if err != nil {
			g.t.Fatal(err)
		}
		back = append(back, records...)
		if texts := rescuedIn(rows); texts != nil {
			for row := range int(rows.NumRows()) {
				if text := texts(row); text != nil {
					g.rescued = append(g.rescued, string(text))
				}
			}
		}
		rows.Release()
	}
	if err := next.Fits(g.schema()); err != nil {
		g.t.Fatal(err)
	}
	if again, err := g.schema().Extended(next); err != nil || again.DeltaJSON() != next.DeltaJSON() {
		g.t.Fatalf("the table would become %v (%v), not %s", again, err, next.DDL())
	}
	if next != g.schema() {
		g.schemas = append(g.schemas, next)
	}
	return back
}

func canonicals(t *testing.T, records ...string) (all []string) {
	t.Helper()
	for _, r := range records {
		c, err := decodetest.Canonical([]byte(r))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// columnsOf returns the columns of the value with their types, in DDL.
func columnsOf(s *schema.Schema) (all []string) {
	for _, f := range s.Fields() {
		if !schema.IsKafkaColumn(f.Name) {
			all = append(all, f.DDL())
		}
	}
	return all
}

// TestGrow_AllValuesBack: in any order of batches, with chunks that were built before the last commits, each record is
// in its row: in columns or in the column for rescued fields.
func TestGrow_AllValuesBack(t *testing.T) {
	seed := rand.Uint64()
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		bounds := schema.NewColumns{PerCommit: 1 + r.IntN(40), PerHour: 1 + r.IntN(400)}
		g := newGrowing(t, []string{"", "a boolean, b bigint, e struct<a:boolean>"}[r.IntN(2)], bounds)
		for range 5 {
			var want []string
			chunks := make([][]string, 1+r.IntN(4))
			for i := range chunks {
				for range r.IntN(20) {
					record := string(decodetest.RandomRecord(r))
					if g.decoder.Declared != nil && open(t, g.schema(), g.decoder, 0).addValue([]byte(record)) != nil {
						continue // it does not fit a declared column
					}
					chunks[i] = append(chunks[i], record)
				}
				want = append(want, chunks[i]...)
			}
			if got := g.commit(r.IntN(3), chunks...); !slices.Equal(got, canonicals(t, want...)) {
				for i, w := range canonicals(t, want...) {
					if got[i] != w {
						t.Fatalf("seed %d, round %d, schema %q:\nrecord %s\nwant %s\ngot  %s", seed, round, columnsOf(g.schema()), want[i], w, got[i])
					}
				}
			}
		}
	}
}

// TestGrow_OrderOfBatches: if the values of each field agree on a type, each order of batches gives the same columns.
// Otherwise the first commit decides, and nothing is lost.
func TestGrow_OrderOfBatches(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	bounds := schema.NewColumns{PerCommit: 1000, PerHour: 1000}
	records := []string{
		`{"a":1,"o":{"x":1.5},"l":[{"p":true}]}`, `{"a":2,"o":{"y":"z"},"l":[{"q":[1]},null]}`, `{"b":"x","o":{},"l":[]}`,
		`{"b":null,"o":{"x":2.5,"deep":{"er":[{"s":"t"}]}},"l":null}`, `{"a b":1}`, `{"l":[{"q":[]},{"q":[2,null]}]}`, `{"o":{"deep":{"er":[{"u":7}]}}}`,
	}
	var want []string
	for range 40 {
		r.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		g, at := newGrowing(t, "", bounds), 0
		for at < len(records) {
			n := 1 + r.IntN(len(records)-at)
			got := g.commit(r.IntN(2), records[at:at+n/2], records[at+n/2:at+n])
			if w := canonicals(t, records[at:at+n]...); !slices.Equal(got, w) {
				t.Fatalf("seed %d: got %q, want %q", seed, got, w)
			}
			at += n
		}
		got := slices.DeleteFunc(sortedColumns(g.schema()), func(c string) bool { return strings.HasPrefix(c, schema.Rescued) }) // {} alone needs it
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: the columns are %q, and %q in another order of batches", seed, want, got)
		}
	}
}

// sortedColumns returns the columns in DDL, with the fields of structs in the order of their names.
func sortedColumns(s *schema.Schema) []string {
	var sorted func(t schema.Type) schema.Type
	sorted = func(t schema.Type) schema.Type {
		if t.Element != nil {
			element := sorted(*t.Element)
			t.Element = &element
		}
		t.Fields = slices.Clone(t.Fields)
		for i := range t.Fields {
			t.Fields[i].Type = sorted(t.Fields[i].Type)
		}
		slices.SortFunc(t.Fields, func(a, b schema.Field) int { return strings.Compare(a.Name, b.Name) })
		return t
	}
	var all []string
	for _, f := range s.Fields() {
		if !schema.IsKafkaColumn(f.Name) {
			f.Type = sorted(f.Type)
			all = append(all, f.DDL())
		}
	}
	slices.Sort(all)
	return all
}

// TestGrow_Columns: what becomes of records, batch by batch. Each batch has the records, the columns after it, and the
// texts of the column for rescued fields.
func TestGrow_Columns(t *testing.T) {
	type batch struct {
		records  []string
		columns  string
		rescued  []string
		overflow bool
	}
	all := schema.NewColumns{PerCommit: 100, PerHour: 500}
	for name, c := range map[string]struct {
		ddl     string
		bounds  schema.NewColumns
		batches []batch
	}{
		"no rescued column without need": {"", all, []batch{{[]string{`{"a":1,"b":null}`}, "a bigint", nil, false}, {[]string{`{"a":2}`}, "a bigint", nil, false}}},
		"only nulls, {} and []":          {"", all, []batch{{[]string{`{"a":null}`}, "", nil, false}, {[]string{`{"a":{},"b":[]}`}, "_rescued", []string{`{"a":{},"b":[]}`}, false}}},
		"a later value of another type": {"", all, []batch{
			{[]string{`{"a":1}`}, "a bigint", nil, false},
			{[]string{`{"a":"x"}`, `{"a":1.5,"b":true}`, `{"a":2}`}, "a bigint, b boolean, _rescued", []string{`{"a":"x"}`, `{"a":1.5}`}, false},
		}},
		"a mix in one batch is text":    {"", all, []batch{{[]string{`{"a":1}`, `{"a":"x"}`}, "a raw", nil, false}, {[]string{`{"a":{"x": [1]}}`}, "a raw", nil, false}}},
		"an integer that no double has": {"", all, []batch{{[]string{`{"a":1.5}`, `{"l":[2.5]}`}, "a double, l array<double>", nil, false}, {[]string{`{"a":9007199254740993,"l":[1,9007199254740993]}`}, "a double, l array<double>, _rescued", []string{`{"a":9007199254740993,"l":[1,9007199254740993]}`}, false}}},
		"nested fields": {"", all, []batch{
			{[]string{`{"s":{"x":1},"l":[[{"x":1}]]}`}, "l array<array<struct<x:bigint>>>, s struct<x:bigint>", nil, false},
			{[]string{`{"s":{"y":{"z":true}},"l":[[{"x":2},{"y":[1]}],[{"y":[]}]]}`}, "l array<array<struct<x:bigint, y:array<bigint>>>>, s struct<x:bigint, y:struct<z:boolean>>", nil, false},
			{
				[]string{`{"s":{"y":{"z":"no"}},"l":[[{"x":3},{"y":[2,"x"]}]]}`, `{"s":[1]}`},
				"l array<array<struct<x:bigint, y:array<bigint>>>>, s struct<x:bigint, y:struct<z:boolean>>, _rescued",
				[]string{`{"s.y.z":"no","l[0][1].y":[2,"x"]}`, `{"s":[1]}`},
				false,
			},
		}},
		"values with new fields in them": {"", all, []batch{
			{[]string{`{"l":[{"x":1}],"a b":{"c":1}}`}, "a_b struct<c:bigint>, l array<struct<x:bigint>>", nil, false},
			{[]string{`{"l":[{"x":2,"y":1}, 5],"a b":{"c":"no"}}`}, "a_b struct<c:bigint>, l array<struct<x:bigint>>, _rescued", []string{`{"l":[{"x":2,"y":1}, 5],"a b.c":"no"}`}, false},
		}},
		"declared columns stay": {"a int, s struct<x:int>, m map<string,struct<x:int>>", all, []batch{
			{[]string{`{"a":1,"s":{"x":1,"y":1},"m":{"k":{"x":1,"z":1}}}`}, "a int, s struct<x:int, y:bigint>, m map<string,struct<x:int>>, _rescued", []string{`{"m.k.z":1}`}, false},
			{[]string{`{"s":{"y":"text"}}`}, "a int, s struct<x:int, y:bigint>, m map<string,struct<x:int>>, _rescued", []string{`{"s.y":"text"}`}, false},
		}},
		"per commit": {"", schema.NewColumns{PerCommit: 2, PerHour: 500}, []batch{
			{[]string{`{"a":1,"b":{"c":1,"d":1}}`, `{"a":1,"b":{"d":1}}`}, "a bigint, b struct<d:bigint>, _rescued", []string{`{"b.c":1}`}, true},
			{[]string{`{"b":{"c":2}}`}, "a bigint, b struct<d:bigint, c:bigint>, _rescued", nil, false},
		}},
		"per hour": {"", schema.NewColumns{PerCommit: 100, PerHour: 3}, []batch{
			{[]string{`{"a":1,"b":[{"x":1}]}`}, "a bigint, b array<struct<x:bigint>>", nil, false},
			{[]string{`{"c":1,"d":2}`, `{"d":2}`}, "a bigint, b array<struct<x:bigint>>, d bigint, _rescued", []string{`{"c":1}`}, true},
			{[]string{`{"c":1}`}, "a bigint, b array<struct<x:bigint>>, d bigint, _rescued", []string{`{"c":1}`}, true},
		}},
		"none at all": {"", schema.NewColumns{}, []batch{{[]string{`{"a":1}`}, "_rescued", []string{`{"a":1}`}, true}}},
		"names": {"", all, []batch{{
			[]string{`{"a b":1,"a,b":2,"A B":3,"_rescued":4,"_kafka_offset":5}`},
			"A_B bigint, __kafka_offset bigint, _rescued_4f08af9a bigint, a_b_c8687a08 bigint, a_b_1eb7c54d bigint", nil, false,
		}}},
	} {
		g := newGrowing(t, c.ddl, c.bounds)
		for i, b := range c.batches {
			if got := g.commit(0, b.records); !slices.Equal(got, canonicals(t, b.records...)) {
				t.Errorf("%s, batch %d: the rows have %q", name, i, got)
			}
			var columns []string
			for _, f := range g.schema().Fields() {
				switch {
				case schema.IsKafkaColumn(f.Name):
				case f.Name == schema.Rescued:
					columns = append(columns, f.Name)
				case f.Raw():
					columns = append(columns, f.Name+" raw")
				default:
					columns = append(columns, f.DDL())
				}
			}
			if got := strings.Join(columns, ", "); got != b.columns {
				t.Errorf("%s, batch %d: columns %s, want %s", name, i, got, b.columns)
			}
			if !slices.Equal(g.rescued, b.rescued) {
				t.Errorf("%s, batch %d: rescued %q, want %q", name, i, g.rescued, b.rescued)
			}
			if g.full != b.overflow {
				t.Errorf("%s, batch %d: full is %v", name, i, g.full)
			}
		}
	}
}

// TestGrow_Late: rows that were built before the table got a column fill it, too.
func TestGrow_Late(t *testing.T) {
	g := newGrowing(t, "", schema.NewColumns{PerCommit: 10, PerHour: 10})
	g.commit(0, []string{`{"a":1,"l":[{"x":1}]}`})
	want := []string{`{"a":2,"l":[{"x":2},{}]}`}
	if got := g.commit(1, nil, want); !slices.Equal(got, canonicals(t, want...)) || len(g.rescued) > 0 || g.full {
		t.Errorf("got %q, rescued %q", got, g.rescued)
	}
	if columns := columnsOf(g.schema()); len(columns) != 2 {
		t.Errorf("%q", columns)
	}
}

// TestGrow_NextHour: an hour later there is room again.
func TestGrow_NextHour(t *testing.T) {
	g := newGrowing(t, "", schema.NewColumns{PerCommit: 100, PerHour: 1})
	for i, want := range []int{1, 1, 2} {
		g.commit(0, []string{fmt.Sprintf(`{"c%d":1}`, i)})
		if got := len(columnsOf(g.schema())); got != want+min(i, 1) { // and the column for the second field
			t.Errorf("batch %d: %q", i, columnsOf(g.schema()))
		}
		g.now = g.now.Add(31 * time.Minute)
	}
}

// TestGrow_HostileNames: 100 000 names in one batch cost bounded memory and get a bounded number of columns; the most
// frequent fields get theirs, and all values are there.
func TestGrow_HostileNames(t *testing.T) {
	g := newGrowing(t, "", schema.NewColumns{PerCommit: 100, PerHour: 500})
	var records []string
	for i := range 1000 {
		var b strings.Builder
		fmt.Fprintf(&b, `{"id":%d`, i)
		for k := range 100 {
			fmt.Fprintf(&b, `,"%s%d":%d`, strings.Repeat("x", k%3*100), i*100+k, k)
		}
		records = append(records, b.String()+"}")
	}
	for commit := range 7 {
		if got := g.commit(0, records); !slices.Equal(got, canonicals(t, records...)) {
			t.Fatal("values are missing")
		}
		columns := columnsOf(g.schema())
		if want := min(100*(commit+1), 500) + 1; commit < 6 && len(columns) != want { // and the column for the others
			t.Errorf("%d columns after commit %d, want %d", len(columns), commit, want)
		}
		if !g.full || !slices.Contains(columns, "id bigint") {
			t.Errorf("full is %v, columns %.200q", g.full, columns)
		}
		if commit >= 5 {
			g.now = g.now.Add(20 * time.Minute)
		}
	}
	if n := len(g.schema().Fields()); n > schema.MaxColumns+1 {
		t.Errorf("%d columns in all", n)
	}
	d := open(t, g.schemas[0], g.decoder, maxDistinct)
	for _, r := range records[:100] {
		if err := d.addValue([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
	rows := d.Seal()
	o, err := observe(g.schemas[0], []connector.Piece{{Rows: rows, To: rows.NumRows()}})
	if err != nil || o.growth == nil {
		t.Error(o, err)
	}
}

// TestGrow_Strict: what does not fit a declared column is refused, also inside of structs and in columns that the table
// has. Columns that another program has added are not declared.
func TestGrow_Strict(t *testing.T) {
	g := newGrowing(t, "a int, s struct<x:int not null, y:int>", schema.NewColumns{PerCommit: 10, PerHour: 10})
	table, err := g.schema().Extended(parse(t, "a int, s struct<x:int not null, y:int, z:int>, foreign int, own struct<n:int not null>"))
	if err != nil {
		t.Fatal(err)
	}
	for record, want := range map[string]string{
		`{"a":"x"}`:                       "type_mismatch",
		`{"s":{"x":1,"y":"2"}}`:           "type_mismatch",
		`{"s":{"y":1}}`:                   "required_missing",
		`{"s":{"x":null}}`:                "required_missing",
		`{"s":{"x":1,"z":"text"}}`:        "",
		`{"foreign":1.5,"new":true}`:      "",
		`{"own":{}}`:                      "",
		`{"own":{"n":null}}`:              "",
		`{"foreign":[{"a":1,"a":2}]}`:     "duplicate_key",
		`{"foreign":"\ud800"}`:            "lone_surrogate",
		`{"foreign":"x","foreign":1}`:     "duplicate_key",
		`{"foreign":tru}`:                 "syntax",
		`{"foreign":"x","new":1,"new":2}`: "duplicate_key",
		`{"foreign":"x","a":1.5,"new":2}`: "not_integral",
	} {
		d := open(t, table, g.decoder, maxDistinct)
		err := d.addValue([]byte(record))
		var e *Error
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", record, err)
		case want != "" && (!errors.As(err, &e) || e.Code() != want):
			t.Errorf("%s: %v, want %s", record, err, want)
		}
		if err := d.addValue([]byte(`{"s":{"x":1}}`)); err != nil { // nothing is left of the record before
			t.Error(err)
		}
		if rows := d.Seal(); want != "" && rescuedIn(rows) != nil {
			t.Errorf("%s: rescued %q", record, rescuedIn(rows)(0))
		}
	}
}

// TestRescue_InferredColumn: with unknown_fields: rescue, a column that was inferred earlier still takes no record away.
func TestRescue_InferredColumn(t *testing.T) {
	g := newGrowing(t, "", schema.NewColumns{PerCommit: 10, PerHour: 10})
	g.commit(0, []string{`{"a":1}`})
	d := open(t, g.schema().WithRescued(), JSON{Rescue: true}, maxDistinct)
	if err := d.addValue([]byte(`{"a":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if got := rescued(t, d); !slices.Equal(got, []string{`{"a":"x"}`}) {
		t.Errorf("%q", got)
	}
	if err := open(t, g.schema(), JSON{}, maxDistinct).addValue([]byte(`{"a":"x"}`)); err == nil {
		t.Error("accepted without a place for the value")
	}
}
