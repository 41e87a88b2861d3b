package health

import (
	"cmp"
	"strconv"
	"time"
)

// LagStatus is the result of the last lag check of this member's partitions.
type LagStatus struct {
	Healthy bool `json:"healthy"`
	// Reason says why the lag is not healthy, "" if it is.
	Reason string `json:"reason,omitempty"`
	// PartitionLags has the lag of each partition, which is End - Position, by TOPIC:PARTITION. It leaves out a
	// partition whose lag was never known.
	PartitionLags map[string]int64 `json:"partition_lags"`
	// LastCheckTime is when the log ends were last fetched: the lags are those of that time.
	LastCheckTime time.Time `json:"last_check_time"`
	// Error says why the last request for the log ends failed for some or all partitions, "" if it succeeded.
	Error string `json:"error,omitempty"`
}

// Verdict describes the trend of a partition's lag, by the rules of Burrow (linkedin/Burrow, "Consumer Lag Evaluation
// Rules").
type Verdict string

// The verdicts about a partition. A partition moves if its position rises or, unless the commit of its rows is overdue,
// if further records of it are decoded.
const (
	VerdictOK     Verdict = "OK"
	VerdictWarn   Verdict = "WARN"   // the partition moves, and over a whole window its lag never shrinks
	VerdictStall  Verdict = "STALL"  // the partition did not move over a whole window, and had a lag at each check
	VerdictStop   Verdict = "STOP"   // as STALL, and the partition has not moved for longer than two windows
	VerdictRewind Verdict = "REWIND" // the position is below an earlier position in the window
	VerdictHeld   Verdict = "HELD"   // the partition is held: the hold has the reason, and what ends it
)

// Level is how the lag of a topic compares with its thresholds.
type Level string

// The levels.
const (
	LevelOK       Level = "ok"
	LevelWarning  Level = "warning"
	LevelCritical Level = "critical"
)

// LagThresholds are the thresholds for the lag of a topic, in records. A lag greater than Warning has the level
// warning, one greater than Critical the level critical. 0 turns a threshold off.
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

// Freshness returns the age in seconds of a partition's oldest record that is not in the table: 0 if the lag is known
// to be 0, nil if oldest is zero. oldest is the timestamp of that record, the zero time if unknown.
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

// UnhealthyError says that a member is not ready because of its lag. The text is the reason in [LagStatus].
type UnhealthyError struct{ Reason string }

func (e *UnhealthyError) Error() string { return e.Reason }
