package decode

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

const everyScalar = "s string, i bigint, i32 int, i16 smallint, i8 tinyint, f double, f32 float, b boolean, d date, t timestamp, o struct<id:string, deep:struct<n:int>>, l array<int>"

func identified(tb testing.TB, text, ddl string) (*jsonDecoder, idempotency.Identity, error) {
	tb.Helper()
	id, err := idempotency.ParseIdentity(text)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		tb.Fatal(err)
	}
	if id.Stored() {
		s = s.WithFingerprint()
	}
	d, err := JSON{Identity: id}.newDecoder(s.WithKafkaColumns(), maxDistinct)
	return d, id, err
}

// sealed decodes records and returns the entries of the chunk, and its column of fingerprints, nil if it has none.
func sealed(t *testing.T, d *jsonDecoder, records ...connector.Record) (entries []idempotency.Entry, column []string) {
	t.Helper()
	for i := range records {
		if err := d.Add(connector.Partition{Topic: "orders", ID: 1}, &records[i]); err != nil {
			t.Fatal(err)
		}
	}
	rows := d.Seal()
	defer rows.Release()
	if at := rows.Schema().FieldIndices(schema.KafkaFingerprint); len(at) == 1 {
		texts, ok := rows.Column(at[0]).(*array.String)
		if !ok {
			t.Fatalf("fingerprints come as %s", rows.Column(at[0]).DataType())
		}
		for row := range texts.Len() {
			text := "null"
			if texts.IsValid(row) {
				text = texts.Value(row)
			}
			column = append(column, text)
		}
	}
	return d.Entries(), column
}

func TestIdentityByField(t *testing.T) {
	for _, c := range []struct {
		path, same, other string
		want              func(*idempotency.Hasher) idempotency.Fingerprint
	}{
		{"s", `{"s":"x"}`, `{"s":"X"}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Text([]byte("x")) }},
		{"i", `{"i":7}`, `{"i":8}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Integer(7) }},
		{"i32", `{"i32":-7}`, `{"i32":7}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Integer(-7) }},
		{"i16", `{"i16":7}`, `{"i16":0}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Integer(7) }},
		{"i8", `{"i8":7}`, `{"i8":1}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Integer(7) }},
		{"f", `{"f":1.5}`, `{"f":1.25}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Float(1.5) }},
		{"f32", `{"f32":1.5}`, `{"f32":0}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Float(1.5) }},
		{"b", `{"b":true}`, `{"b":false}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Boolean(true) }},
		{"d", `{"d":"1970-01-03"}`, `{"d":"1970-01-04"}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Date(2) }},
		{"t", `{"t":"1970-01-01T00:00:01Z"}`, `{"t":"1970-01-01T00:00:01.000001Z"}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Time(1_000_000) }},
		{"o.id", `{"o":{"id":"x"}}`, `{"o":{"id":"y"}}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Text([]byte("x")) }},
		{"o.deep.n", `{"o":{"deep":{"n":0}}}`, `{"o":{"deep":{"n":1}}}`, func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Integer(0) }},
	} {
		t.Run(c.path, func(t *testing.T) {
			d, id, err := identified(t, "field:"+c.path, everyScalar)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // twice with the same decoder: the second chunk must be as the first
				top, _, _ := strings.Cut(c.path, ".")
				got, column := sealed(t, d,
					connector.Record{Offset: 10, Timestamp: 5, Value: []byte(c.same)},
					connector.Record{Offset: 12, Timestamp: -1, Value: []byte(`{}`)},
					connector.Record{Offset: 13, Timestamp: 6, Value: []byte(c.same)},
					connector.Record{Offset: 14, Timestamp: 7, Value: []byte(`{"` + top + `":null}`)},
					connector.Record{Offset: 15, Timestamp: -5, Value: []byte(c.other)})
				want := c.want(idempotency.NewHasher(id))
				wanted := []idempotency.Entry{
					{Fingerprint: want, Offset: 10, At: 5},
					{Offset: 12, At: -1},
					{Fingerprint: want, Offset: 13, At: 6},
					{Offset: 14, At: 7},
					{Fingerprint: got[4].Fingerprint, Offset: 15, At: -1},
				}
				if diff := cmp.Diff(wanted, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if got[4].Fingerprint == want || got[4].Fingerprint.IsZero() {
					t.Error("another value is not another identity")
				}
				if column != nil {
					t.Error("a column of fingerprints, although a column has the identity")
				}
			}
		})
	}
}

func TestIdentityByHeaderAndContent(t *testing.T) {
	header := func(pairs ...string) (all []connector.Header) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, connector.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return all
	}
	value := []byte(`{"s":"x"}`)
	for _, c := range []struct {
		identity string
		// Returns the fingerprint that records 0 and 1, but not record 2, must have.
		want    func(*idempotency.Hasher) idempotency.Fingerprint
		records []connector.Record
	}{
		{"header:id", func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Header([]byte("e-1")) }, []connector.Record{
			{Value: value, Headers: header("id", "e-1")},
			{Value: value, Headers: header("id", "e-0", "other", "x", "id", "e-1", "ID", "e-2")},
			{Value: value, Headers: header("Id", "e-1")},
			{Value: value, Headers: header("id", "e-1", "id", "")},
			{Value: value, Headers: []connector.Header{{Key: "id"}}},
			{Value: value, Headers: header("id", "e-2")},
		}},
		{"content", func(h *idempotency.Hasher) idempotency.Fingerprint { return h.Content([]byte("k"), value) }, []connector.Record{
			{Key: []byte("k"), Value: value, Headers: header("id", "1")},
			{Key: []byte("k"), Value: value},
			{Value: value},
			{Key: []byte{}, Value: value},
			{Key: []byte("k"), Value: []byte(`{"s": "x"}`)},
		}},
	} {
		t.Run(c.identity, func(t *testing.T) {
			d, id, err := identified(t, c.identity, "s string")
			if err != nil {
				t.Fatal(err)
			}
			want := c.want(idempotency.NewHasher(id))
			entries, column := sealed(t, d, c.records...)
			for i, e := range entries {
				if (e.Fingerprint == want) != (i < 2) {
					t.Errorf("record %d has %s, %s is the first one's", i, e.Fingerprint, want)
				}
				text := e.Fingerprint.String()
				if text == "" {
					text = "null"
				}
				if column[i] != text {
					t.Errorf("record %d: the column has %s, the entry %s", i, column[i], text)
				}
			}
			// A chunk may begin with rows that have no identity.
			if entries, column = sealed(t, d, c.records[2], c.records[0]); entries[1].Fingerprint != want || column[1] != want.String() {
				t.Errorf("in the next chunk: %v, %v", entries, column)
			}
		})
	}
}

func TestIdentity_FingerprintFieldIgnored(t *testing.T) {
	d, _, err := identified(t, "header:id", "s string")
	if err != nil {
		t.Fatal(err)
	}
	entries, column := sealed(t, d, connector.Record{Value: []byte(`{"_kafka_fingerprint":"00000000000000000000000000000001"}`)})
	if !entries[0].Fingerprint.IsZero() || column[0] != "null" {
		t.Errorf("%v, %v", entries, column)
	}
	if n := d.Ignored().Fields; n != 1 {
		t.Errorf("%d fields were passed over", n)
	}
}

func TestIdentity_None(t *testing.T) {
	d, _, err := identified(t, "none", "s string")
	if err != nil {
		t.Fatal(err)
	}
	if entries, column := sealed(t, d, connector.Record{Value: []byte(`{"s":"x"}`)}); entries != nil || column != nil {
		t.Errorf("%v, %v", entries, column)
	}
	// If the table has the fingerprint column, but the configuration names no identity, the column is null.
	s := parse(t, "s string").WithFingerprint()
	if _, column := sealed(t, open(t, s, JSON{}, 10), connector.Record{Value: []byte(`{"s":"x"}`)}); column[0] != "null" {
		t.Errorf("%v", column)
	}
}

func TestIdentity_MissingColumn(t *testing.T) {
	for _, c := range []struct{ identity, ddl, want string }{
		{"field:x", "s string", "needs column x, which the table does not have"},
		{"field:o.x", "o struct<id:string>", "needs column o.x, which the table does not have"},
		{"field:s.x", "s string", "leads through column s, which is string"},
		{"field:o", "o struct<id:string>", "o is struct"},
		{"field:l", "l array<int>, s string", "l is array"},
	} {
		_, _, err := identified(t, c.identity, c.ddl)
		held := (*hold.Error)(nil)
		if !errors.As(err, &held) || held.Reason != hold.SchemaConflict || !strings.Contains(held.Detail, c.want) {
			t.Errorf("%s over %s: %v, want %s", c.identity, c.ddl, err, c.want)
		}
	}
	_, err := JSON{Identity: idempotency.Identity{By: idempotency.ByContent}}.newDecoder(parse(t, "s string"), 10)
	if want := "ALTER TABLE … ADD COLUMNS (_kafka_fingerprint string)"; !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestEntriesHaveIDs: entries have the producer's own id only if the decoder was made with WithIDs. The memory of the
// ids then counts.
func TestEntriesHaveIDs(t *testing.T) {
	long := strings.Repeat("x", idempotency.MaxIDBytes)
	for _, c := range []struct{ by, value, want string }{
		{"field:s", `{"s":"evt-1"}`, "evt-1"},
		{"field:s", `{"s":"\u00e4\n"}`, "ä\n"},
		{"field:s", `{"s":"` + long + `"}`, long},
		{"field:s", `{"s":"` + long + `x"}`, ""},
		{"field:s", `{"s":"a\u0000"}`, ""},
		{"field:s", `{"s":""}`, ""},
		{"field:i", `{"i":-7}`, "-7"},
		{"field:i32", `{"i32":7}`, "7"},
		{"field:i16", `{"i16":7}`, "7"},
		{"field:i8", `{"i8":7}`, "7"},
		{"field:f", `{"f":1.5}`, "1.5"},
		{"field:f", `{"f":-0.0}`, "0"},
		{"field:f32", `{"f32":0.1}`, "0.1"},
		{"field:b", `{"b":true}`, "true"},
		{"field:d", `{"d":"2026-03-01"}`, "2026-03-01"},
		{"field:t", `{"t":"2026-03-01T12:00:00.000001+01:00"}`, "2026-03-01T11:00:00.000001Z"},
		{"field:o.id", `{"o":{"id":"evt-1"}}`, "evt-1"},
		{"header:id", `{}`, "evt-1"},
		{"content", `{"s":"evt-1"}`, ""},
	} {
		t.Run(c.by+c.want, func(t *testing.T) {
			id, err := idempotency.ParseIdentity(c.by)
			if err != nil {
				t.Fatal(err)
			}
			columns := parse(t, everyScalar).WithFingerprint()
			records := []connector.Record{
				{Offset: 1, Timestamp: 5, Value: []byte(c.value), Headers: []connector.Header{{Key: "id", Value: []byte("other")}, {Key: "id", Value: []byte("evt-1")}}},
				{Offset: 2, Timestamp: 5, Value: []byte(`{"o":null}`)},
				{Offset: 3, Timestamp: 5, Value: []byte(c.value), Headers: []connector.Header{{Key: "id", Value: []byte("evt-1")}}},
			}
			plain, asked := open(t, columns, JSON{Identity: id}, 10), open(t, columns, JSON{Identity: id}.WithIDs().(JSON), 10)
			for range 2 { // twice with the same decoder: the second chunk must be as the first
				without, _ := sealed(t, plain, records...)
				with, _ := sealed(t, asked, records...)
				if idempotency.IDBytes(without) != 0 {
					t.Errorf("ids that nobody asked for: %v", without)
				}
				if with[0].ID != c.want || with[1].ID != "" || with[2].ID != c.want {
					t.Errorf("ids %q, want %q", []string{with[0].ID, with[1].ID, with[2].ID}, c.want)
				}
				if got, want := asked.Sealed(), plain.Sealed()+idempotency.IDBytes(with); got != want {
					t.Errorf("the chunk counts as %d bytes, want %d", got, want)
				}
				for i := range with {
					if with[i].ID = ""; with[i] != without[i] {
						t.Errorf("entry %d is %v, without ids %v", i, with[i], without[i])
					}
				}
			}
			if c.by == "header:id" {
				before := plain.Allocated()
				for i := range records {
					for _, d := range []*jsonDecoder{plain, asked} {
						if err := d.Add(connector.Partition{}, &records[i]); err != nil {
							t.Fatal(err)
						}
					}
				}
				if plain.Allocated() == before || asked.Allocated() < plain.Allocated()+10 {
					t.Errorf("the ids of headers do not count: %d and %d bytes", asked.Allocated(), plain.Allocated())
				}
			}
		})
	}
}
