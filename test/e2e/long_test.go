//go:build lab && long

package e2e

import (
	"time"

	"sluice/test/lab"
)

// These are the numbers of repetitions and records, and the durations, in the long suite.
const (
	killsAtRandom       = 20
	killsWhileCommiting = 10
	stormLasts          = 10 * time.Minute

	outageLasts = 3 * time.Minute
	outageRate  = 1000 // records per second

	// outagePatient and outageTimeout have the defaults of retry, breaker and storage.s3.timeout.
	outagePatient = "retry: {initial: 1s, max: 30s}\nbreaker: {failures: 5, open_for: 60s, successes: 3}"
	outageTimeout = "30s"

	recordsOfThree    = 1_000_000
	stormOfThreeLasts = 5 * time.Minute
	memoryRecords     = 2_000_000

	awayOfThree = time.Minute

	poisonRecords = 200_000
	poisonRate    = 4_000
	flapEvery     = 5 * time.Second

	replayedThroughTopic = 10_000 // dead letters in TestReplayTopic_Killed
	killsAtPut           = 3      // outcomes of a killed replay's PUT there, of three: never, at once, later

	hostileAll = true // rows of TestHostile
)

// checkWithMore compares the table with readers that only the long suite uses.
func (s *scene) checkWithMore() {
	s.t.Helper()
	s.checkWith(lab.Spark, "--readers", "spark", "--predicates", "3", "--most", "40")
}
