package admin

import (
	"strings"
	"testing"

	"sluice/classify"
	"sluice/connector"
)

// panicking is a builder whose Add panics, like a decoder with a bug.
type panicking struct{ connector.Builder }

func (panicking) Add(connector.Partition, *connector.Record) error { panic("a value of a record") }

// TestDecodes_Panic: a record that makes the decoder panic is poison, and the hold shows none of its content.
func TestDecodes_Panic(t *testing.T) {
	t.Parallel()
	err := decodes(panicking{}, connector.Partition{Topic: "orders"}, &connector.Record{Value: []byte("x")})
	if classify.Of(err) != classify.Poison || !strings.Contains(err.Error(), "decode: panic") || strings.Contains(err.Error(), "a value") {
		t.Errorf("%v", err)
	}
}
