//go:build lab && long

package e2e

import (
	"time"

	"sluice/test/lab"
)

// How often the long suite does what the short one does a few times.
const (
	killsAtRandom       = 20
	killsWhileCommiting = 10
	stormLasts          = 10 * time.Minute

	recordsOfThree    = 1_000_000
	stormOfThreeLasts = 5 * time.Minute
	memoryRecords     = 2_000_000

	awayOfThree = time.Minute
)

// checkWithMore is for readers that only the long suite asks.
func (s *scene) checkWithMore() {
	s.t.Helper()
	s.checkWith(lab.Spark, "--readers", "spark", "--predicates", "3", "--most", "40")
}
