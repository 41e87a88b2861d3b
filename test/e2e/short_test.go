//go:build lab && !long

package e2e

import "time"

// These are the numbers of repetitions and records, and the durations, in the short suite.
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

	// One in ten of these records cannot become a row. They arrive at poisonRate a second while the store fails and
	// works in turns.
	poisonRecords = 20_000
	poisonRate    = 2_000
	flapEvery     = 2 * time.Second

	replayedThroughTopic = 2000 // dead letters in TestReplayTopic_Killed
	killsAtPut           = 1    // outcomes of a killed replay's PUT there, of three: never, at once, later

	hostileAll = false // rows of TestHostile
)

// checkWithMore does nothing: only the long suite uses more readers.
func (s *scene) checkWithMore() {}
