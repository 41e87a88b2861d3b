package intake

import (
	"testing"

	"sluice/connector"
)

func TestDecoderOf_IDs(t *testing.T) {
	for name, c := range map[string]struct {
		duplicates *connector.Duplicates
		want       bool
	}{"no identity": {nil, false}, "memory": {&connector.Duplicates{}, false}, "database": {&connector.Duplicates{IDs: true}, true}} {
		target := connector.Target{Decoder: idDecoder{}, Duplicates: c.duplicates}
		if got := decoderOf(&target).(idDecoder).ids; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	target := connector.Target{Decoder: struct{ connector.Decoder }{}, Duplicates: &connector.Duplicates{IDs: true}}
	if decoderOf(&target) != target.Decoder {
		t.Error("a decoder without ids was replaced")
	}
	r := readerOf(t, Config{Tables: tables{target: connector.Target{Decoder: idDecoder{}, Duplicates: &connector.Duplicates{IDs: true}}}})
	if table := r.assignment.tableFor("orders"); !table.Decoder.(idDecoder).ids {
		t.Error("the lanes got a decoder that sets no ids")
	}
}

// idDecoder is a decoder with WithIDs; ids is true for the decoder that WithIDs returned.
type idDecoder struct {
	connector.Decoder
	ids bool
}

func (d idDecoder) WithIDs() connector.Decoder { return idDecoder{ids: true} }
