package postgres

import (
	"slices"
	"testing"

	"sluice/idempotency"
)

func TestChunkedIDs(t *testing.T) {
	entries := make([]idempotency.Entry, chunk+2)
	entries[0].ID, entries[1].ID, entries[chunk].ID, entries[chunk+1].ID = "evt-1", "日本", "evt-2", "ä"
	var ids, ascii []string
	for some := range chunked(slices.Values(entries)) {
		if len(some.ids) != len(some.texts) {
			t.Fatalf("%d ids of %d rows", len(some.ids), len(some.texts))
		}
		ids = append(ids, some.ids[:2]...)
		some.asciiOnly()
		ascii = append(ascii, some.ids[:2]...)
	}
	if want := []string{"evt-1", "日本", "evt-2", "ä"}; !slices.Equal(ids, want) {
		t.Errorf("%q, want %q", ids, want)
	}
	if want := []string{"evt-1", "", "evt-2", ""}; !slices.Equal(ascii, want) {
		t.Errorf("%q, want %q", ascii, want)
	}
}
