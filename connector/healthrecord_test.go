package connector

import "testing"

// TestLastHeader: the last header with the name counts, also if it has no value.
func TestLastHeader(t *testing.T) {
	headers := []Header{{"a", []byte("1")}, {"x", []byte("2")}, {"a", []byte("3")}, {"y", []byte("4")}, {"n", []byte("5")}, {"n", nil}}
	if v, ok := LastHeader(headers, "a"); !ok || string(v) != "3" {
		t.Errorf("%s, %v", v, ok)
	}
	if v, ok := LastHeader(headers, "n"); !ok || v != nil {
		t.Errorf("without a value: %s, %v", v, ok)
	}
	if _, ok := LastHeader(headers, "z"); ok {
		t.Error("found one")
	}
}
