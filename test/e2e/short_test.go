//go:build lab && !long

package e2e

import "time"

// How often the short suite does what the long one does more often.
const (
	memoryRecords = 200_000

	killsAtRandom       = 4
	killsWhileCommiting = 2
	stormLasts          = 3 * time.Minute

	outageLasts   = 12 * time.Second
	outageRate    = 200 // records per second
	outagePatient = "retry: {initial: 100ms, max: 1s}\nbreaker: {open_for: 5s}"
	outageTimeout = "1s"

	recordsOfThree    = 100_000
	stormOfThreeLasts = 90 * time.Second
	awayOfThree       = 8 * time.Second

	// Records of which one in ten cannot become a row, so many a second, while the store comes and goes.
	poisonRecords = 20_000
	poisonRate    = 2_000
	flapEvery     = 2 * time.Second

	hostileAll = false // rows of TestHostile
)

// checkWithMore is for readers that only the long suite asks.
func (s *scene) checkWithMore() {}
