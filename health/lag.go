package health

import "time"

// LagStatus is what the watch over the lag of this member's partitions found at its last look.
type LagStatus struct {
	Healthy bool `json:"healthy"`
	// Reason says why it is not healthy, "" if it is.
	Reason string `json:"reason,omitempty"`
	// PartitionLags are end - position, by topic-partition.
	PartitionLags map[string]int64 `json:"partition_lags"`
	LastCheckTime time.Time        `json:"last_check_time"`
}

// Verdict says how a partition's lag moves, after Burrow's rules.
type Verdict string

// The verdicts.
const (
	VerdictOK     Verdict = "OK"
	VerdictWarn   Verdict = "WARN"   // positions move, and the lag never shrinks
	VerdictStop   Verdict = "STOP"   // nothing has moved the position for longer than the window is
	VerdictStall  Verdict = "STALL"  // the position does not move, and there is a lag
	VerdictRewind Verdict = "REWIND" // the position went back
)

// Level is how a partition's lag compares with the thresholds of its topic.
type Level string

// The levels.
const (
	LevelOK       Level = "ok"
	LevelWarning  Level = "warning"
	LevelCritical Level = "critical"
)
