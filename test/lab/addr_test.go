package lab_test

import (
	"testing"

	"sluice/test/lab"
)

// TestFreeAddr expects FreeAddr never to repeat an address: a broker gets several before it listens on the first.
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
