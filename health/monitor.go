package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// LagRules decide when a lag makes a member unhealthy.
type LagRules struct {
	Max    int64         // largest adjusted lag of a partition that is healthy
	Every  time.Duration // interval between two checks
	Window int           // number of checks that a verdict covers
	Rises  int           // number of rises of the lag in a row that mean a stuck partition
	// Topic is the only topic of the pipeline, whose name the reasons leave out; "" if there are several.
	Topic string
}

// LagSample is the result of one check of a partition. Offsets are -1 if unknown.
type LagSample struct {
	TopicPartition
	// Identity distinguishes this partition from another one of the same name, and this claim from an earlier claim of
	// it. If it changes, earlier samples do not count.
	Identity any
	Table    string
	End      int64 // last stable offset of the partition
	Position int64 // position of the partition in the table
	Consumed int64 // offset after the last decoded record, whether it became a row or not
	// Hold is the reason of the partition's hold, "" if it is not held.
	Hold string
	// Waiting is the time since which rows of the table have waited for their commit, zero if none wait. CommitEvery is
	// the longest time that rows should wait.
	Waiting     time.Time
	CommitEvery time.Duration
	Thresholds  LagThresholds
}

// PartitionLag is the lag of one partition as of the last [Monitor.Observe].
type PartitionLag struct {
	// Lag is end - position, Adjusted the lag that the rules judge; both as last known, -1 if they never were.
	Lag, Adjusted int64
	// Overdue is true if the commit of rows of the partition is overdue: see [LagSample.overdue].
	Overdue bool
	Verdict Verdict // "" before the lag was known for the first time
	// Level compares the lag of the whole topic with its thresholds: the sum of the adjusted lags of those of its
	// partitions that this member has.
	Level Level
}

// LagReport is the result of [Monitor.Observe].
type LagReport struct {
	Status     LagStatus
	Partitions map[TopicPartition]PartitionLag
}

// Monitor judges the lag of a member's partitions from regular samples. It does no I/O and has no clock.
//
// It judges an adjusted lag: rows that wait for their commit count as consumed until the commit is overdue, so that a
// batch that fills for a minute is not a stuck consumer. After that only rows in the table count. The maximum lag also
// applies to a held partition, which never counts as stuck.
type Monitor struct {
	rules      LagRules
	partitions map[TopicPartition]*lagHistory
	checked    time.Time
}

// NewMonitor returns a monitor that has seen nothing yet.
func NewMonitor(rules LagRules) *Monitor {
	return &Monitor{rules: rules, partitions: map[TopicPartition]*lagHistory{}}
}

// Observe takes the samples of all partitions that this member has now and judges them. A partition without a sample is
// no longer claimed; if it returns, its history starts from zero. A sample without an end or a position adds nothing to
// the history.
func (m *Monitor) Observe(now time.Time, samples []LagSample) LagReport {
	present := map[TopicPartition]bool{}
	known := len(samples) == 0
	for _, s := range samples {
		present[s.TopicPartition] = true
		h := m.partitions[s.TopicPartition]
		if h == nil || h.sample.Identity != s.Identity {
			h = &lagHistory{lag: PartitionLag{Lag: -1, Adjusted: -1}}
			m.partitions[s.TopicPartition] = h
		}
		if h.observe(now, s, m.rules) {
			known = true
		}
	}
	maps.DeleteFunc(m.partitions, func(p TopicPartition, _ *lagHistory) bool { return !present[p] })
	if known {
		m.checked = now
	}
	return m.report()
}

// report builds the report from the histories.
func (m *Monitor) report() LagReport {
	l := LagReport{
		Status:     LagStatus{PartitionLags: map[string]int64{}, LastCheckTime: m.checked},
		Partitions: map[TopicPartition]PartitionLag{},
	}
	var reasons []string
	lags := m.topicLags()
	for _, p := range slices.SortedFunc(maps.Keys(m.partitions), compareTopicPartitions) {
		h := m.partitions[p]
		lag := h.lag
		lag.Level = h.sample.Thresholds.Level(lags[p.Topic])
		l.Partitions[p] = lag
		if h.lag.Lag < 0 {
			continue
		}
		l.Status.PartitionLags[p.String()] = h.lag.Lag
		reasons = append(reasons, h.reasons(m.rules)...)
	}
	l.Status.Healthy = len(reasons) == 0
	l.Status.Reason = bounded(reasons)
	return l
}

// topicLags returns the sum of the known adjusted lags of each topic. Thresholds apply to the sum, so that many
// partitions that are each a little behind exceed them, too.
func (m *Monitor) topicLags() map[string]int64 {
	lags := map[string]int64{}
	for p, h := range m.partitions {
		lags[p.Topic] += max(0, h.lag.Adjusted)
	}
	return lags
}

// maxReasons is how many reasons the text lists. It gives only the number of the others.
const maxReasons = 5

func bounded(reasons []string) string {
	if left := len(reasons) - maxReasons; left > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(reasons[:maxReasons], "; "), left)
	}
	return strings.Join(reasons, "; ")
}

// lagHistory is the history of a partition.
type lagHistory struct {
	sample LagSample  // the sample of the last check
	window []lagPoint // one point for each of the last checks in which the lag was known, the oldest first; empty during a hold
	moved  time.Time  // time of the last point with more progress than the point before it, or without one before it
	lag    PartitionLag
}

// lagPoint is what a check adds to the window of a partition.
type lagPoint struct {
	at       time.Time
	position int64 // position in the table
	progress int64 // position; or, while the commit of rows on their way is not overdue, the offset after those rows
	lag      int64 // the adjusted lag
}

// observe takes a sample. known is true if the sample has both an end and a position, so that it has a lag.
func (h *lagHistory) observe(now time.Time, s LagSample, rules LagRules) (known bool) {
	h.sample = s
	known = s.End >= 0 && s.Position >= 0
	overdue := s.overdue(now, rules.Every)
	point := lagPoint{at: now, position: s.Position, progress: s.Position}
	if !overdue {
		point.progress = max(s.Position, s.Consumed)
	}
	if known {
		point.lag = max(0, s.End-point.progress)
		h.lag.Lag, h.lag.Adjusted = max(0, s.End-s.Position), point.lag
		h.lag.Overdue = overdue && s.Consumed > s.Position
	}
	switch {
	case s.Hold != "":
		h.window, h.lag.Verdict = nil, VerdictHeld
	case known:
		h.add(point, rules.Window)
		h.lag.Verdict = h.verdict(rules.Window)
	case h.lag.Verdict == VerdictHeld: // the hold ended between the last check and this one
		h.lag.Verdict = VerdictOK
	}
	return known
}

// overdue reports whether rows of the table have waited for their commit longer than twice CommitEvery, and also longer
// than every, the interval between two checks.
func (s *LagSample) overdue(now time.Time, every time.Duration) bool {
	return !s.Waiting.IsZero() && now.Sub(s.Waiting) > max(2*s.CommitEvery, every)
}

func (h *lagHistory) add(p lagPoint, size int) {
	if n := len(h.window); n == 0 || p.progress > h.window[n-1].progress {
		h.moved = p.at
	}
	if h.window = append(h.window, p); len(h.window) > size {
		h.window = slices.Delete(h.window, 0, len(h.window)-size)
	}
}

// rises returns how many times in a row the lag has risen up to the newest point, 0 if it did not rise at that point.
func (h *lagHistory) rises() (n int) {
	for i := len(h.window) - 1; i > 0 && h.window[i].lag > h.window[i-1].lag; i-- {
		n++
	}
	return n
}

// verdict judges the window, which must not be empty. A window that is not full yet is OK or a REWIND.
func (h *lagHistory) verdict(size int) Verdict {
	first, last := h.window[0], h.window[len(h.window)-1]
	furthest, least, moves, shrinks := last.position, last.lag, false, false
	for i, p := range h.window[:len(h.window)-1] {
		next := h.window[i+1]
		furthest, least = max(furthest, p.position), min(least, p.lag)
		moves = moves || next.progress > p.progress
		shrinks = shrinks || next.lag < p.lag
	}
	// Rows are on their way and their commit is not overdue, so a position that does not move is no stall.
	waits := last.progress > last.position
	switch span := last.at.Sub(first.at); {
	case last.position < furthest:
		return VerdictRewind
	case len(h.window) < size, least == 0:
		return VerdictOK
	case !moves && waits:
		return VerdictOK
	case !moves && last.at.Sub(h.moved) > 2*span:
		return VerdictStop
	case !moves:
		return VerdictStall
	case !shrinks:
		return VerdictWarn
	}
	return VerdictOK
}

// reasons returns the texts that say why the partition makes the member unhealthy, nil if it does not.
func (h *lagHistory) reasons(rules LagRules) (all []string) {
	s := &h.sample
	name := fmt.Sprintf("Partition %d", s.Partition)
	if s.Topic != rules.Topic {
		name = fmt.Sprintf("Topic %s partition %d", s.Topic, s.Partition)
	}
	if h.rises() >= rules.Rises {
		all = append(all, name+" lag consistently increasing")
	}
	if h.lag.Adjusted > rules.Max {
		all = append(all, fmt.Sprintf("%s lag (%d) exceeds maximum (%d)", name, h.lag.Adjusted, rules.Max))
	}
	if n := len(all); n > 0 {
		switch {
		case s.Hold != "":
			all[n-1] += ", held: " + s.Hold
		case h.lag.Overdue:
			all[n-1] += ", commit overdue: table " + s.Table
		}
	}
	return all
}
