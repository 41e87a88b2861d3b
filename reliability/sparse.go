package reliability

import (
	"sync"
	"time"
)

// Sparse keeps a line that may come with every record from filling the log: it lets at most burst lines pass in each
// interval and counts the others, so that the next line can say how many there were. It limits lines only: count with a
// metric if the number must be exact. Code that would log a line per record calls Next first, mostly on one Sparse per
// topic:
//
//	if left, ok := s.Next(); ok {
//		logger.Info("DEAD LETTER", …, "left_out", left)
//	}
//
// Safe for several goroutines.
type Sparse struct {
	burst int
	every time.Duration

	mu    sync.Mutex
	ends  time.Time // end of the current interval
	lines int       // number of lines that passed in the interval
	left  int64     // number of lines left out since the last line that passed
}

// NewSparse returns a Sparse that lets burst lines, at least one, pass in each interval.
func NewSparse(burst int, every time.Duration) *Sparse {
	return &Sparse{burst: max(burst, 1), every: every}
}

// Next reports whether a line may be written now, and how many lines were left out before it.
func (s *Sparse) Next() (left int64, ok bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.Before(s.ends) {
		s.ends, s.lines = now.Add(s.every), 0
	}
	if s.lines >= s.burst {
		s.left++
		return 0, false
	}
	s.lines++
	left, s.left = s.left, 0
	return left, true
}
