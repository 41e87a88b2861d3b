//go:build lab && !long

package e2e

// How often the short suite does what the long one does more often.
const (
	killsAtRandom       = 4
	killsWhileCommiting = 2
)

// checkWithMore is for readers that only the long suite asks.
func (s *scene) checkWithMore() {}
