//go:build long

package model

import "testing"

// TestLongWorld visits every state of worlds that are too large for TestProtocol, and expects no violation.
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
