package plan

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"sluice/connector"
)

// Verdict is why a record of these coordinates cannot become a row, as it was found before a lane met it.
type Verdict struct {
	Err         error // Poison
	Retries     int
	First, Last time.Time // when it failed
}

// Verdicts are the verdicts about records of a table, and the records that lanes try one by one. The table's writer makes
// them, lanes look. The maps and what is in them are never changed, only replaced.
type Verdicts struct {
	of        atomic.Pointer[map[connector.Partition]map[int64]Verdict]
	suspected atomic.Pointer[map[connector.Partition]Suspects]
}

// Suspects are the offsets [from, to) of a partition, whose rows a lane could not seal together. Lanes try each of these
// records by itself before they make a row of it. The zero value is none.
type Suspects struct{ from, to int64 }

// Has reports whether an offset is one of them.
func (s Suspects) Has(offset int64) bool { return s.from <= offset && offset < s.to }

// Suspects returns those of a partition.
func (i *Verdicts) Suspects(p connector.Partition) Suspects {
	if all := i.suspected.Load(); all != nil {
		return (*all)[p]
	}
	return Suspects{}
}

// Suspect has lanes try the records of chunks that could not be sealed. The writer's alone.
func (i *Verdicts) Suspect(failures []Failure) {
	failures = slices.DeleteFunc(slices.Clone(failures), func(f Failure) bool { return !f.Sealing })
	if len(failures) == 0 {
		return
	}
	all := map[connector.Partition]Suspects{}
	if old := i.suspected.Load(); old != nil {
		maps.Copy(all, *old)
	}
	for _, f := range failures {
		for _, run := range f.Runs {
			s, known := all[run.Partition]
			if !known {
				s = Suspects{run.First, run.Last + 1}
			}
			all[run.Partition] = Suspects{min(s.from, run.First), max(s.to, run.Last+1)}
		}
	}
	i.suspected.Store(&all)
}

// For returns the verdicts about a partition, nil if there are none, which is nearly always.
func (i *Verdicts) For(p connector.Partition) map[int64]Verdict {
	if all := i.of.Load(); all != nil {
		return (*all)[p]
	}
	return nil
}

// Add notes a verdict. The writer's alone.
func (i *Verdicts) Add(p connector.Partition, offset int64, v Verdict) {
	all := map[connector.Partition]map[int64]Verdict{}
	if old := i.of.Load(); old != nil {
		maps.Copy(all, *old)
	}
	of := maps.Clone(all[p])
	if of == nil {
		of = map[int64]Verdict{}
	}
	of[offset] = v
	all[p] = of
	i.of.Store(&all)
}

// Passed forgets the verdicts that the table's positions have passed, and the suspects of these partitions. The writer's
// alone.
func (i *Verdicts) Passed(next map[connector.Partition]Span) {
	if all := i.suspected.Load(); all != nil {
		left := maps.Clone(*all)
		maps.DeleteFunc(left, func(p connector.Partition, s Suspects) bool {
			span, moved := next[p]
			return moved && span.Next >= s.to
		})
		i.suspected.Store(&left)
	}
	old := i.of.Load()
	if old == nil {
		return
	}
	all := map[connector.Partition]map[int64]Verdict{}
	for p, of := range *old {
		span, moved := next[p]
		left := map[int64]Verdict{}
		for offset, v := range of {
			if !moved || offset >= span.Next {
				left[offset] = v
			}
		}
		if len(left) > 0 {
			all[p] = left
		}
	}
	if len(all) == 0 {
		i.of.Store(nil)
		return
	}
	i.of.Store(&all)
}
