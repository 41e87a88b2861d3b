package schema_test

import (
	"slices"
	"strings"
	"testing"

	"sluice/connector/schema"
	"sluice/reliability/hold"
)

// TestMetadata: each word adds its column once. A table may lack any of them, and must not have them with types that
// members do not fill.
func TestMetadata(t *testing.T) {
	plain := parse(t, "a int").WithKafkaColumns()
	for _, word := range schema.MetadataWords() {
		s := parse(t, "a int").WithMetadata(word).WithMetadata(word).WithKafkaColumns()
		name := schema.MetadataColumn(word)
		i := slices.IndexFunc(s.Fields(), func(f schema.Field) bool { return f.Name == name })
		if i < 0 || len(s.Fields()) != len(plain.Fields())+1 || !schema.IsKafkaColumn(name) || !strings.HasPrefix(name, "_kafka_") {
			t.Fatalf("%s: %s", word, s.DDL())
		}
		// The next commit adds the column to a table that lacks it, except the one that is there by default.
		rows, err := plain.ForRows(s)
		checkHold(t, err, "", "")
		if err == nil && (rows != plain) != (word != "topic_id") {
			t.Errorf("%s: rows of a table without the column: %s", word, rows.DDL())
		}
		_, err = s.ForRows(plain)
		checkHold(t, err, "", "")
		checkHold(t, reread(t, s).HasKafkaColumns(), "", "")
		other := strings.Replace(s.DeltaJSON(), `{"name":"`+name+`","type":`, `{"name":"`+name+`","type":"date","nullable":true},{"name":"x","type":`, 1)
		odd, err := schema.FromDelta([]byte(other))
		if err != nil {
			t.Fatal(err)
		}
		checkHold(t, odd.HasKafkaColumns(), hold.SchemaConflict, "column "+name+" is date and must be ")
	}
	if s := parse(t, "a int"); s.WithMetadata("nothing") != s || schema.MetadataColumn("topic") != "" {
		t.Error("a word without a column")
	}
}

func TestMetadata_Key(t *testing.T) {
	bytes, text := parse(t, "a int").WithMetadata("key").WithKafkaColumns(), parse(t, "a int").WithMetadata("key:text").WithKafkaColumns()
	_, err := bytes.ForRows(text)
	checkHold(t, err, hold.SchemaConflict, "column _kafka_key is binary in the table: write key in metadata_columns")
	_, err = text.ForRows(bytes)
	checkHold(t, err, hold.SchemaConflict, "column _kafka_key is string in the table: write key:text in metadata_columns")
}

// TestMetadata_Headers: the type of the column must take null values of headers, and have no other fields.
func TestMetadata_Headers(t *testing.T) {
	s := parse(t, "a int").WithMetadata("headers").WithKafkaColumns().DeltaJSON()
	for was, is := range map[string]string{
		`"name":"value","type":"binary","nullable":true`: `"name":"value","type":"binary","nullable":false`,
		`"name":"value","type":"binary"`:                 `"name":"value","type":"string"`,
		`{"name":"value","type":"binary"`:                `{"name":"more","type":"string","nullable":true},{"name":"value","type":"binary"`,
		`"name":"key"`:                                   `"name":"name"`,
		`"containsNull":true`:                            `"containsNull":false`,
	} {
		changed := strings.Replace(s, was, is, 1)
		if changed == s {
			t.Fatalf("no %s in %s", was, s)
		}
		odd, err := schema.FromDelta([]byte(changed))
		if err != nil {
			t.Fatal(err)
		}
		checkHold(t, odd.HasKafkaColumns(), hold.SchemaConflict, "column _kafka_headers is ")
	}
}
