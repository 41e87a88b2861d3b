package admin

import (
	"slices"
	"testing"
)

// FuzzOffsetSeq: for any text, parseOffsetSeq returns an error or valid next offsets.
func FuzzOffsetSeq(f *testing.F) {
	f.Add([]byte("v1\n{\"conf\":{}}\n{\"orders\":{\"0\":12,\"1\":7}}"), "orders")
	f.Add([]byte("v1\n{}\n-\n{\"a\":{\"0\":1}}\n"), "a")
	f.Fuzz(func(t *testing.T, text []byte, topic string) {
		ends, topics, err := parseOffsetSeq(text, topic)
		for id, next := range ends {
			if err == nil && (id < 0 || next < 0) {
				t.Fatalf("partition %d at %d", id, next)
			}
		}
		if err == nil && ends != nil && !slices.Contains(topics, topic) {
			t.Fatalf("%v of topics %v", ends, topics)
		}
	})
}
