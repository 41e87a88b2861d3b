package admin

import (
	"strings"
	"testing"

	"sluice/classify"
	"sluice/connector"
)

// panicking is a builder whose decoder has a mistake.
type panicking struct{ connector.Builder }

func (panicking) Add(connector.Partition, *connector.Record) error { panic("a value of a record") }

// TestHoldsSurviveADecoder: a record that panics the decoder is a bad one, and the hold shows no part of its content.
func TestHoldsSurviveADecoder(t *testing.T) {
	t.Parallel()
	err := decodes(panicking{}, connector.Partition{Topic: "orders"}, &connector.Record{Value: []byte("x")})
	if classify.Of(err) != classify.Poison || !strings.Contains(err.Error(), "decode: panic") || strings.Contains(err.Error(), "a value") {
		t.Errorf("%v", err)
	}
}
