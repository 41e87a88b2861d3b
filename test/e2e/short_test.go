//go:build lab && !long

package e2e

import "time"

// How often the short suite does what the long one does more often.
const (
	memoryRecords = 200_000

	killsAtRandom       = 4
	killsWhileCommiting = 2
	stormLasts          = 3 * time.Minute

	recordsOfThree    = 100_000
	stormOfThreeLasts = 90 * time.Second
	awayOfThree       = 8 * time.Second
)

// checkWithMore is for readers that only the long suite asks.
func (s *scene) checkWithMore() {}
