package reliability

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSparseLeavesOutAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSparse(2, time.Minute)
		ask := func(times int) (lines int, told []int64) {
			for range times {
				if left, ok := s.Next(); ok {
					lines++
					told = append(told, left)
				}
			}
			return lines, told
		}
		if lines, told := ask(10); lines != 2 || told[0] != 0 || told[1] != 0 {
			t.Errorf("first interval: %d lines, left out %v", lines, told)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if lines, _ := ask(1); lines != 0 {
			t.Error("a line before the interval ended")
		}
		time.Sleep(time.Nanosecond)
		if lines, told := ask(3); lines != 2 || told[0] != 9 || told[1] != 0 {
			t.Errorf("second interval: %d lines, left out %v, want [9 0]", lines, told)
		}
		time.Sleep(time.Hour) // the next interval begins only with its first line
		if lines, told := ask(2); lines != 2 || told[0] != 1 {
			t.Errorf("later: %d lines, left out %v, want [1 0]", lines, told)
		}
	})
}

func TestSparseLosesNoCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSparse(0, time.Second) // with a limit of 0, one line passes in each interval
		var lines, told atomic.Int64
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() {
				for range 1000 {
					if left, ok := s.Next(); ok {
						lines.Add(1)
						told.Add(left)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		asking.Wait()
		time.Sleep(time.Second)
		left, ok := s.Next()
		if got := lines.Load() + told.Load() + left; !ok || got != 8000 || lines.Load() != 1 {
			t.Errorf("%d lines, %d left out, then %d (%v): want 8000 in one interval of one line", lines.Load(), told.Load(), left, ok)
		}
	})
}
