// Package health derives the status of a connector from its [Report]. It does no I/O: health/ops serves the probes.
package health

import (
	"errors"
	"fmt"
	"time"

	"sluice/reliability/hold"
)

// Report is the state of a connector at one moment. It is immutable.
type Report struct {
	Pipeline string
	Group    string
	Member   string // the name of the process that reports
	// Joined is true while the member belongs to the current generation of the consumer group.
	Joined bool
	// Resumed is true while every claim of the member has its position from the table, or is held. It becomes false
	// again for a new claim, and for claims that read their position again.
	Resumed bool
	// Draining is true from the first signal to stop.
	Draining bool
	// Started is true once Joined and Resumed have been true together, and stays true.
	Started bool
	// Tested is true once the store passed its self-test.
	Tested       bool
	Brokers      []string // addresses of Kafka's brokers, as configured
	Holds        []Hold
	Partitions   []Partition
	Dependencies []Dependency
	// Canary is nil if no canary is configured.
	Canary *Canary
	// Lag is nil if the lag is not checked.
	Lag *LagStatus
	// Letters is nil if dead letters are not counted.
	Letters *Letters
	// Members is nil if no store of registrations is configured.
	Members *Members
	// Fingerprints says how many fingerprints this member keeps in memory, with one entry for each topic that declares
	// an identity.
	Fingerprints []Fingerprints
	Memory       []Pool
	// Queued is the number of records that were enqueued and are not rows yet. Paused is true while backpressure stops
	// reading for at least one table: too many records are queued, no memory is left, or a batch is full while the one
	// before it commits.
	Queued int64
	Paused bool
	// Operations is nil if no operations log is followed.
	Operations *Operations
}

// Hold is the hold of a partition, of a whole topic if Partition is negative, or of all topics if Topic is "".
type Hold struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Reason    string    `json:"reason"` // code of the reason; docs/operations.md has a section for each
	Detail    string    `json:"detail"`
	Since     time.Time `json:"since"`
	Offset    int64     `json:"offset"` // the position of the hold, -1 if unknown
	// Ending is the command line that ends the hold. If it is "", [Hold.Held] derives the command from Reason.
	Ending string `json:"-"`
}

// Partition is the progress and the lag of a partition.
type Partition struct {
	Topic string
	ID    int32
	// Position is the next offset to read according to the table, -1 if unknown.
	Position int64
	// End is the last stable offset, where a reader of committed records ends. -1 if unknown.
	End int64
	// Table is the path of the table that the partition feeds.
	Table string
	// Verdict and Level are from the last check of the lag, "" before the first one. Level is that of the topic: it
	// judges the sum of the adjusted lags of the topic's partitions that this member has.
	Verdict Verdict
	Level   Level
	// Adjusted is the lag by which readiness is judged, from the last check. In it, rows that wait for their commit
	// count as consumed until that commit is overdue. It is nil if unknown.
	Adjusted   *int64
	Thresholds LagThresholds
	// Freshness is the age in seconds of the oldest record that is not in the table, by its timestamp: 0 if all records
	// are in the table, nil if unknown.
	Freshness *float64
}

// Dependency is the state of Kafka or of a store.
type Dependency struct {
	Name string `json:"name"`
	// Table is the path of the table if only that one depends on the dependency, "" if all tables do.
	Table string `json:"table,omitempty"`
	// Open is true while the circuit breaker lets no requests through, because too many failed.
	Open bool `json:"open"`
	// Failing is the time of the first failure since the last success, nil if the last request succeeded.
	Failing *time.Time `json:"failing_since,omitempty"`
	Error   string     `json:"error,omitempty"`
}

// Lag returns how many offsets of the partition are not in the table yet; known is false if the position or the end is
// unknown. The lag is 0 if the position was read later than the end and is beyond it.
func (p Partition) Lag() (lag int64, known bool) {
	if p.Position < 0 || p.End < 0 {
		return 0, false
	}
	return max(0, p.End-p.Position), true
}

// TotalLag sums up the partitions whose lag is known.
func (r Report) TotalLag() int64 {
	var total int64
	for _, p := range r.Partitions {
		lag, _ := p.Lag()
		total += lag
	}
	return total
}

// The errors of [Report.Ready], besides [UnhealthyError].
var (
	ErrDraining   = errors.New("draining: asked to stop")
	ErrNotJoined  = errors.New("not joined: no generation of the consumer group")
	ErrNotResumed = errors.New("not resumed: positions are not read from the table yet")
)

// Ready returns why the connector is not ready, nil if it is. An unhealthy lag is an [UnhealthyError]. Holds by
// themselves do not count: a restart or another member would meet the same hold, and the other partitions continue.
// Before the member has joined and resumed, the error also names the dependency that fails.
func (r Report) Ready() error {
	switch {
	case r.Draining:
		return ErrDraining
	case !r.Joined:
		return because(ErrNotJoined, r.trouble(hold.Kafka))
	case !r.Resumed:
		t := r.trouble(hold.Kafka)
		if t.status == OK {
			t = r.trouble(hold.Store)
		}
		return because(ErrNotResumed, t)
	case r.Lag != nil && !r.Lag.Healthy:
		return &UnhealthyError{r.Lag.Reason}
	}
	return nil
}

// because adds t, the trouble of a dependency that may be the cause of err, to err. It returns err unchanged if there
// is no trouble.
func because(err error, t trouble) error {
	if t.status == OK {
		return err
	}
	return fmt.Errorf("%w: %s", err, t.reason)
}
