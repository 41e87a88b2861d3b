package story_test

import (
	"flag"
	"testing"
	"testing/synctest"

	"sluice/test/story"
)

var tights = flag.Int("story.tights", 300, "how many seeded schedules to run with hardly any memory")

// TestSchedulesInLittleMemory is TestSchedules where each process has memory for one to four answers: every wait for memory
// ends, nothing is used after it was given back (it is overwritten then), and in the end everything was given back once.
func TestSchedulesInLittleMemory(t *testing.T) {
	first, last := uint64(1), uint64(*tights)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			w := story.NewWorld(s, 3)
			w.Fetch = story.Response + 4<<10*int64(1+s%4)
			w.CommitRows = 1 + int64(s%7)
			play(t, w, s)
		})
	}
}
