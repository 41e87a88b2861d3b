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

// StartPolicy names the rule that finds the first positions of a topic.
type StartPolicy string

// The policies. A partition added to a topic later starts at its first record under every policy.
const (
	StartEarliest StartPolicy = "earliest" // the first record that the log still has
	StartLatest   StartPolicy = "latest"   // the last stable offset, which is after every record committed by now
	// StartTimestamp is the first record whose timestamp is at least a given time. If there is no such record, it is
	// the end of the log, as with StartLatest.
	StartTimestamp StartPolicy = "timestamp"
	StartExplicit  StartPolicy = "explicit" // offsets from the configuration
)

// Start says where the member begins to read a topic that has no position in the table. The zero value is earliest.
type Start struct {
	Policy StartPolicy
	// At is the time for StartTimestamp. If At is zero, the time is the moment at which the initial commit is planned,
	// minus Back.
	At   time.Time
	Back time.Duration
	// Offsets are the offsets for StartExplicit by partition. Each is the next offset to read, and must lie within the
	// log. Others is the policy for the partitions that Offsets does not have: StartEarliest (the default) or
	// StartLatest.
	Offsets map[int32]int64
	Others  StartPolicy
}

// String returns the policy and its parameters, for people.
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

// ForNewTopic returns the start for a topic that was created while the member runs. Its records are all newer than the
// start of the run, so StartLatest becomes StartEarliest.
func (s Start) ForNewTopic() Start {
	if s.Policy == StartLatest {
		s.Policy = StartEarliest
	}
	if s.Others == StartLatest {
		s.Others = StartEarliest
	}
	return s
}

// First returns the first position of each partition in bounds. at is the result of [Log.OffsetsAt] for the time of the
// start; only StartTimestamp uses it. The error is a [hold.Error] if an explicit offset lies outside of its log or
// names a partition that does not exist.
//
// The caller must request bounds first and then at. In the other order, a record that is produced between the two
// requests could lie before the last stable offset, and would be skipped.
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
				"start_at sets %v to offset %d, but its log is [%d, %d]: correct start_at; no record has been read yet", p, o, b.LogStart, b.HighWatermark), nil)
		}
		if o > b.HighWatermark {
			return nil, hold.New(hold.AheadOfLogEnd, fmt.Sprintf(
				"start_at sets %v to offset %d, but its log is [%d, %d]: correct start_at; no record has been read yet", p, o, b.LogStart, b.HighWatermark), nil)
		}
	}
	if s.Policy == StartExplicit {
		for _, id := range slices.Sorted(maps.Keys(s.Offsets)) {
			if !there[id] {
				return nil, hold.New(hold.AheadOfLogEnd, fmt.Sprintf(
					"start_at names partition %d, but the topic has %d partitions: correct start_at; no record has been read yet", id, len(there)), nil)
			}
		}
	}
	return starts, nil
}
