package plan

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"sluice/connector"
)

// Verdict says why a record cannot become a row. The writer found this out when the record failed the first time; lanes
// use it when the record is read again.
type Verdict struct {
	Err         error // has class Poison
	Retries     int
	First, Last time.Time // when the record failed first and last
}

// Verdicts has what the writer has found out about records of a table: verdicts, and suspects, which lanes test one by
// one. Lanes read it while the writer changes it, so the writer never changes a map but replaces it.
type Verdicts struct {
	of        atomic.Pointer[map[connector.Partition]map[int64]Verdict]
	suspected atomic.Pointer[map[connector.Partition]Suspects]
}

// Suspects are the offsets [from, to) of a partition in which a record makes it impossible to seal a chunk; which
// record that is, is unknown. So lanes test each of these records by itself before they make a row of it. The zero
// value has no offsets.
type Suspects struct{ from, to int64 }

// Has reports whether the offset is a suspect.
func (s Suspects) Has(offset int64) bool { return s.from <= offset && offset < s.to }

// Suspects returns the suspects of a partition.
func (i *Verdicts) Suspects(p connector.Partition) Suspects {
	if all := i.suspected.Load(); all != nil {
		return (*all)[p]
	}
	return Suspects{}
}

// Suspect makes the records of all chunks that could not be sealed suspects. It ignores other failures. Only the writer
// calls it.
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

// For returns the verdicts about a partition by offset, nil if there are none (the usual case).
func (i *Verdicts) For(p connector.Partition) map[int64]Verdict {
	if all := i.of.Load(); all != nil {
		return (*all)[p]
	}
	return nil
}

// Add adds a verdict. Only the writer calls it.
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

// Passed deletes the verdicts and the suspects that the table's positions have passed. Only the writer calls it.
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
