package idempotency_test

import (
	"slices"
	"strings"
	"testing"

	"sluice/idempotency"
)

func TestIsID(t *testing.T) {
	for value, want := range map[string]bool{
		"evt-1": true, "ä 日本 \n": true, strings.Repeat("x", idempotency.MaxIDBytes): true,
		"": false, strings.Repeat("x", idempotency.MaxIDBytes+1): false, "a\x00": false, "\xff": false,
	} {
		if got := idempotency.IsID([]byte(value)); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

func TestIDs(t *testing.T) {
	var ids idempotency.IDs
	for range 2 { // one IDs, used for two chunks one after the other
		text := []byte("evt-1")
		for _, v := range [][]byte{text, nil, []byte("\x00"), []byte("evt-2"), []byte("evt-3")} {
			ids.Add(v)
		}
		if ids.Allocated() < 15 {
			t.Errorf("%d bytes", ids.Allocated())
		}
		text[0] = '?'
		entries := make([]idempotency.Entry, 5)
		ids.MoveTo(entries)
		var got []string
		for _, e := range entries {
			got = append(got, e.ID)
		}
		if want := []string{"evt-1", "", "", "evt-2", "evt-3"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if n := idempotency.IDBytes(entries); n != 15 {
			t.Errorf("the ids take %d bytes", n)
		}
	}
	for range 100_000 {
		ids.Add([]byte("evt-1"))
	}
	ids.MoveTo(make([]idempotency.Entry, 100_000))
	if n := ids.Allocated(); n > 64<<10 {
		t.Errorf("%d bytes are kept of a large chunk", n)
	}
}
