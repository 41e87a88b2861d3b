package connector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/reliability/hold"
)

// StartPolicy says how the first positions of a topic are found.
type StartPolicy string

// The policies. A partition that is added to a topic later starts at its first record, whatever the policy.
const (
	StartEarliest  StartPolicy = "earliest"  // the first record that the log still has
	StartLatest    StartPolicy = "latest"    // the last stable offset: behind every committed record of now
	StartTimestamp StartPolicy = "timestamp" // the first record not older than a time; without one, as latest
	StartExplicit  StartPolicy = "explicit"  // offsets that are given
)

// Start says where a topic that the table does not know yet is read from. The zero value is earliest.
type Start struct {
	Policy StartPolicy
	// At is the time of StartTimestamp. If it is zero, the time is Back before the START is planned.
	At   time.Time
	Back time.Duration
	// Offsets are those of StartExplicit by partition: each the next one to read, within the log. Others is where the
	// partitions without one start, StartEarliest ("" too) or StartLatest.
	Offsets map[int32]int64
	Others  StartPolicy
}

// String is the policy with what it needs, for people.
func (s Start) String() string {
	switch {
	case s.Policy == StartTimestamp && s.At.IsZero():
		return "timestamp " + s.Back.String() + " back"
	case s.Policy == StartTimestamp:
		return "timestamp " + s.At.UTC().Format(time.RFC3339Nano)
	case s.Policy == StartExplicit:
		var b strings.Builder
		b.WriteString("explicit")
		for _, id := range slices.Sorted(maps.Keys(s.Offsets)) {
			fmt.Fprintf(&b, " %d:%d", id, s.Offsets[id])
		}
		return b.String() + " others:" + string(cmp.Or(s.Others, StartEarliest))
	}
	return string(cmp.Or(s.Policy, StartEarliest))
}

// ForNewTopic is the start of a topic that was created after the run began: its end was its first record then.
func (s Start) ForNewTopic() Start {
	if s.Policy == StartLatest {
		s.Policy = StartEarliest
	}
	if s.Others == StartLatest {
		s.Others = StartEarliest
	}
	return s
}

// First says where each partition with bounds starts. at is what [Log.OffsetsAt] answered about the time of the start,
// asked after bounds, so that no record of that time or later lies between: it is looked at for StartTimestamp only. The
// error is a hold.Error for an offset outside of its log, or of a partition that is not there.
func (s Start) First(bounds map[Partition]Bounds, at map[Partition]int64) (map[Partition]int64, error) {
	starts := make(map[Partition]int64, len(bounds))
	there := map[int32]bool{}
	for _, p := range slices.SortedFunc(maps.Keys(bounds), Partition.Compare) {
		b := bounds[p]
		policy := s.Policy
		if policy == StartExplicit {
			policy = s.Others
		}
		starts[p] = b.LogStart
		switch policy {
		case StartLatest:
			starts[p] = b.LastStable
		case StartTimestamp:
			starts[p] = b.LastStable
			if o, ok := at[p]; ok {
				starts[p] = max(o, b.LogStart)
			}
		default:
		}
		there[p.ID] = true
		o, given := s.Offsets[p.ID]
		if s.Policy != StartExplicit || !given {
			continue
		}
		starts[p] = o
		if o < b.LogStart {
			return nil, hold.New(hold.BehindLogStart, fmt.Sprintf(
				"start_at sets %v to offset %d, but its log is [%d, %d]: correct start_at, nothing was read yet", p, o, b.LogStart, b.HighWatermark), nil)
		}
		if o > b.HighWatermark {
			return nil, hold.New(hold.AheadOfLogEnd, fmt.Sprintf(
				"start_at sets %v to offset %d, but its log is [%d, %d]: correct start_at, nothing was read yet", p, o, b.LogStart, b.HighWatermark), nil)
		}
	}
	if s.Policy == StartExplicit {
		for _, id := range slices.Sorted(maps.Keys(s.Offsets)) {
			if !there[id] {
				return nil, hold.New(hold.AheadOfLogEnd, fmt.Sprintf(
					"start_at names partition %d, and the topic has %d partitions: correct start_at, nothing was read yet", id, len(there)), nil)
			}
		}
	}
	return starts, nil
}
