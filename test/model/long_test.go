//go:build lab

package model

import "testing"

// TestLongWorld is two claims with one record more each than in TestProtocol: millions of states.
func TestLongWorld(t *testing.T) {
	if r := search(t, World{Records: [2]string{"gg", "pg"}}); !r.Exhausted || r.Bad != "" {
		t.Error("not proved")
	}
}
