package health

import (
	"cmp"
	"strconv"
	"time"
)

// LagStatus is the result of the last lag check of this member's partitions.
type LagStatus struct {
	Healthy bool `json:"healthy"`
	// Reason says why it is not healthy, "" if it is.
	Reason string `json:"reason,omitempty"`
	// PartitionLags are end - position, by topic-partition.
	PartitionLags map[string]int64 `json:"partition_lags"`
	// LastCheckTime is when the log ends were last fetched; all other fields are as old as this.
	LastCheckTime time.Time `json:"last_check_time"`
	// Error says why the ends could not be learnt since, for all partitions or some; "" if they could.
	Error string `json:"error,omitempty"`
}

// Verdict describes the trend of a partition's lag, by the rules of Burrow (linkedin/Burrow, "Consumer Lag Evaluation
// Rules").
type Verdict string

// The verdicts. "Moves" is about the position, and about rows on their way while their commit is not overdue.
const (
	VerdictOK     Verdict = "OK"
	VerdictWarn   Verdict = "WARN"   // it moves, and over a whole window the lag never shrinks
	VerdictStall  Verdict = "STALL"  // it did not move over a whole window, and there was a lag all along
	VerdictStop   Verdict = "STOP"   // a STALL, and it has not moved for longer than two windows
	VerdictRewind Verdict = "REWIND" // the position went back, and has not caught up with itself
	VerdictHeld   Verdict = "HELD"   // held on purpose: the hold says why, and what ends it
)

// Level is how the lag of a topic compares with its thresholds.
type Level string

// The levels.
const (
	LevelOK       Level = "ok"
	LevelWarning  Level = "warning"
	LevelCritical Level = "critical"
)

// LagThresholds are those of a topic, in records; 0 is none. A lag strictly above counts.
type LagThresholds struct {
	Warning, Critical int64
}

// Level compares the adjusted lag of a topic with the thresholds.
func (t LagThresholds) Level(lag int64) Level {
	switch {
	case t.Critical > 0 && lag > t.Critical:
		return LevelCritical
	case t.Warning > 0 && lag > t.Warning:
		return LevelWarning
	}
	return LevelOK
}

// Freshness returns the age of the oldest record that is not in the table, in seconds by its timestamp, of a partition with
// this lag. oldest is the zero time if unknown; then the result is nil, unless the lag is 0.
func Freshness(now time.Time, lag int64, known bool, oldest time.Time) *float64 {
	seconds := 0.0
	switch {
	case known && lag == 0:
	case oldest.IsZero():
		return nil
	default:
		seconds = max(0, now.Sub(oldest).Seconds())
	}
	return &seconds
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String returns TOPIC:PARTITION, such as orders:3.
func (p TopicPartition) String() string { return p.Topic + ":" + strconv.Itoa(int(p.Partition)) }

func compareTopicPartitions(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// UnhealthyError is why a member is not ready although it works: its lag. The text is that of [LagStatus].
type UnhealthyError struct{ Reason string }

func (e *UnhealthyError) Error() string { return e.Reason }
