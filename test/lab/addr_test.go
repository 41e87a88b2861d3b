package lab_test

import (
	"testing"

	"sluice/test/lab"
)

// TestFreeAddr: a broker gets several addresses before it listens on the first, so FreeAddr must not repeat one.
func TestFreeAddr(t *testing.T) {
	given := map[string]bool{}
	for range 2000 {
		addr, err := lab.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		if given[addr] {
			t.Fatalf("%s was given twice", addr)
		}
		given[addr] = true
	}
}
