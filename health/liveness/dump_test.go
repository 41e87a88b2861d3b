package liveness_test

import (
	"bytes"
	"strings"
	"testing"

	"sluice/health/liveness"
)

// record is passed by value, so that its words are on the stack of the called function.
type record struct {
	secret [4]uint64
}

//go:noinline
func decode(r record, number uint64, began chan<- struct{}, end <-chan struct{}) uint64 {
	began <- struct{}{}
	<-end
	return r.secret[0] + number
}

//go:noinline
func (r record) method(number uint64, began chan<- struct{}, end <-chan struct{}) uint64 {
	began <- struct{}{}
	<-end
	return r.secret[1] + number
}

// TestGoroutinesHoldNoValues: the dump has no arguments of functions, which Go prints and which may be parts of a
// record.
func TestGoroutinesHoldNoValues(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	const secret = 0xdeadbeefcafe
	r := record{[4]uint64{secret, secret, secret, secret}}
	go decode(r, secret, began, end)
	go r.method(secret, began, end)
	<-began
	<-began
	defer close(end)
	dump := string(liveness.Goroutines(1 << 20))
	for _, want := range []string{"liveness_test.decode(...)\n", "liveness_test.record.method(...)\n", "dump_test.go:", "[chan receive]:\n", "created by "} {
		if !strings.Contains(dump, want) {
			t.Errorf("it does not say %q:\n%s", want, dump)
		}
	}
	if strings.Contains(dump, "deadbeef") {
		t.Errorf("it holds a value:\n%s", dump)
	}
}

func TestGoroutinesAreBounded(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	for range 200 {
		go decode(record{}, 0, began, end)
		<-began
	}
	defer close(end)
	for _, most := range []int{100, 1000, 10_000} {
		dump := liveness.Goroutines(most)
		if len(dump) > most+100 || !bytes.Contains(dump, []byte("[cut: 20")) || !bytes.HasSuffix(dump, []byte(" goroutines in all]\n")) {
			t.Errorf("at most %d: %d bytes, ends with %q", most, len(dump), dump[max(0, len(dump)-60):])
		}
	}
}
