//go:build lab

package oracle_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/test/lab"
)

const typesDDL = `n bigint not null, d decimal(9,2), mid decimal(18,4), wide decimal(38,6), b binary, m map<string,bigint>,
	deep map<string,struct<at:timestamp, d:decimal(20,3), tags:array<string>>>, at timestamp, loc timestamp, raw string,
	s struct<b:binary, m:map<string,string>, d:decimal(5,5)>, bs array<binary>, ds array<decimal(30,1)>, maps array<map<string,boolean>>`

var typesOptions = map[string]string{"at": "epoch_ms", "loc": "utc round", "raw": "raw", "s.b": "hex", "deep.at": "epoch_us"}

// typed is a value as JSON in the record, and as a reader's row must show it: decimals as text without zeros at the end,
// bytes in hex, timestamps as microseconds, maps as lists of [key, value] by key.
type typed struct {
	json string
	want any
}

var absent = typed{"null", nil}

// sample makes values of random size.
type sample struct{ *rand.Rand }

// maybe returns v or null.
func (r sample) maybe(v typed) typed {
	if r.IntN(5) == 0 {
		return absent
	}
	return v
}

// decimal returns a decimal of precision p and scale s. Numbers of one shift are close to each other.
func (r sample) decimal(p, s int, shift int64) typed {
	v := big.NewInt(shift*100 + r.Int64N(100))
	if r.IntN(8) == 0 { // as many digits as there can be
		v.Exp(big.NewInt(10), big.NewInt(int64(p)), nil).Sub(v, big.NewInt(1+r.Int64N(50)))
	}
	v.Rem(v, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(p)), nil))
	if r.IntN(3) == 0 {
		v.Neg(v)
	}
	text := new(big.Rat).SetFrac(v, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(s)), nil)).FloatString(s)
	plain := text
	if strings.Contains(plain, ".") {
		plain = strings.TrimRight(strings.TrimRight(plain, "0"), ".")
	}
	if plain == "-0" {
		plain = "0"
	}
	switch r.IntN(4) {
	case 0:
		return typed{`"` + text + `"`, plain}
	case 1:
		return typed{v.String() + fmt.Sprintf("e-%d", s), plain}
	}
	return typed{text, plain}
}

func (r sample) bytes(encode func([]byte) string) typed {
	b := make([]byte, r.IntN(40))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return typed{`"` + encode(b) + `"`, hex.EncodeToString(b)}
}

func (r sample) text() typed {
	s := []string{"", "tea", "Zürich", "a\"b", "日本", "x y"}[r.IntN(6)]
	return typed{quoted(s), s}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a text can always be encoded
	}
	return string(b)
}

func (r sample) list(of func() typed) typed {
	texts, want := []string{}, []any{}
	for range r.IntN(4) {
		v := r.maybe(of())
		texts, want = append(texts, v.json), append(want, v.want)
	}
	return typed{"[" + strings.Join(texts, ", ") + "]", want}
}

func (r sample) mapping(of func() typed) typed {
	texts, want := []string{}, []any{}
	for i, key := range []string{"", "a", "b", "größe", "k\n"} {
		if r.IntN(2) == 0 {
			continue
		}
		v := r.maybe(of())
		texts, want = append(texts, quoted(key)+": "+v.json), append(want, []any{key, v.want})
		if i == 3 {
			slices.Reverse(texts)
		}
	}
	return typed{"{" + strings.Join(texts, ", ") + "}", want}
}

func (r sample) object(names []string, values ...typed) typed {
	texts, want := []string{}, map[string]any{}
	for i, name := range names {
		texts, want[name] = append(texts, quoted(name)+": "+values[i].json), values[i].want
	}
	return typed{"{" + strings.Join(texts, ", ") + "}", want}
}

// row returns record n.
func (r sample) row(n int64) typed {
	micros := r.Int64N(4e15)
	shift := n / 400 * 1000 // each file has values of its own, so that its statistics exclude most predicates
	raw := []string{`{"a" : [1, 2.50]}`, `"tea"`, `1e3`, `true`, `[]`}[r.IntN(5)]
	return r.object([]string{"n", "d", "mid", "wide", "b", "m", "deep", "at", "loc", "raw", "s", "bs", "ds", "maps"},
		typed{fmt.Sprint(n), n},
		r.maybe(r.decimal(9, 2, shift)), r.maybe(r.decimal(18, 4, shift)), r.maybe(r.decimal(38, 6, shift)),
		r.maybe(r.bytes(base64.StdEncoding.EncodeToString)),
		r.maybe(r.mapping(func() typed { v := r.Int64(); return typed{fmt.Sprint(v), v} })),
		r.maybe(r.mapping(func() typed {
			return r.object([]string{"at", "d", "tags"}, r.maybe(typed{fmt.Sprint(micros), micros}), r.maybe(r.decimal(20, 3, n)), r.maybe(r.list(r.text)))
		})),
		r.maybe(typed{fmt.Sprint(micros / 1000), micros / 1000 * 1000}),
		r.maybe(typed{`"` + time.UnixMicro(micros).UTC().Format("2006-01-02 15:04:05.000000") + `5"`, micros + 1}),
		r.maybe(typed{raw, raw}),
		r.maybe(r.object([]string{"b", "m", "d"}, r.maybe(r.bytes(hex.EncodeToString)), r.maybe(r.mapping(r.text)), r.maybe(r.decimal(5, 5, n)))),
		r.maybe(r.list(func() typed { return r.bytes(base64.StdEncoding.EncodeToString) })),
		r.maybe(r.list(func() typed { return r.decimal(30, 1, n) })),
		r.maybe(r.list(func() typed { return r.mapping(func() typed { return typed{"true", true} }) })),
	)
}

// TestTypes: deltalake, DuckDB and Polars read each value of the types with parameters, and of columns with options, as
// the record has it. Predicates on decimals find the same rows as without statistics.
func TestTypes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "table")
	store, err := objstore.NewLocal(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	columns, err := schema.ParseDDL(typesDDL)
	if err != nil {
		t.Fatal(err)
	}
	guard := reliability.NewGuard("store", config.Default().Guard(), slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
	table, err := delta.Open(store, delta.Options{Pipeline: "p", Engine: "sluice/test", Schema: columns, Guard: guard, TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	options := decode.ColumnOptions{}
	for path, words := range typesOptions {
		if options[path], err = decode.ParseColumnOption(words); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := sample{rand.New(rand.NewPCG(seed, 1))}
	var want bytes.Buffer
	partition := idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}}
	for from := int64(0); from < 1200; from += 400 {
		s, err := table.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := decode.JSON{Columns: options}.Builder(s.Schema)
		if err != nil {
			t.Fatal(err)
		}
		for n := from; n < from+400; n++ {
			row := r.row(n)
			if err := b.Add(partition, &connector.Record{Offset: n, Timestamp: 1, Value: []byte(row.json)}); err != nil {
				t.Fatalf("%v: %s", err, row.json)
			}
			if err := json.NewEncoder(&want).Encode(row.want); err != nil {
				t.Fatal(err)
			}
		}
		rows := b.Seal()
		c := &connector.Commit{
			Operation: "STREAMING UPDATE", Txns: []connector.Txn{{AppID: partition.AppID("p"), Version: from + 400}},
			Ranges: []connector.Range{{Topic: "orders", From: from, Next: from + 400, Rows: 400, Epoch: -1}},
		}
		if c.Staged, err = table.Stage(t.Context(), s, "b-1", []connector.Piece{{Rows: rows, To: 400}}, nil); err != nil {
			t.Fatal(err)
		}
		rows.Release()
		if _, err := table.Commit(t.Context(), c, func(*connector.Snapshot) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "want.json")
	if err := os.WriteFile(path, want.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := lab.Python(t.Context(), "oracle/typedrows.py", "--table", dir, "--want", path)
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
