//go:build long

package model

import "testing"

// TestLongWorld has worlds with more records than TestProtocol: millions of states.
func TestLongWorld(t *testing.T) {
	for name, w := range map[string]World{
		"TwoClaims": {Records: [2]string{"gg", "pg"}},
		"Expiring":  expiring,
		"Polled":    {Records: [2]string{"gg"}, Days: 2, Polls: true},
	} {
		t.Run(name, func(t *testing.T) {
			if r := search(t, w); !r.Exhausted || r.Bad != "" {
				t.Error("not proved")
			}
		})
	}
}
