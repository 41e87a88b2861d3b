package health

import (
	"errors"
	"time"

	"sluice/reliability/hold"
)

// Status is the state of a connector, or of a component, in one word.
type Status string

// The statuses of the connector and of its components.
const (
	OK       Status = "ok"
	Unknown  Status = "unknown"  // the source that the status comes from does not answer
	Degraded Status = "degraded" // something is wrong, and the work continues
	Down     Status = "down"     // of the connector: unhealthy lag, or no longer joined or resumed; of a component: nothing of it works
	Starting Status = "starting" // of the connector: never joined and resumed so far; of a component: not checked yet
	Draining Status = "draining" // the member stops and commits the open batch
)

// Status summarises the report. It is Draining, Starting or Down exactly if [Report.Ready] returns an error. Otherwise
// it is the worst status of the parts, but a part that is down counts as Degraded: its work continues without a restart
// once the part is back.
func (r Report) Status() Status { return r.status(r.Components()) }

func (r Report) status(components []Component) Status {
	switch err := r.Ready(); {
	case errors.Is(err, ErrDraining):
		return Draining
	case (errors.Is(err, ErrNotJoined) || errors.Is(err, ErrNotResumed)) && !r.Started:
		return Starting
	case err != nil:
		return Down
	}
	whole := OK
	for _, c := range components {
		switch c.Status {
		case Degraded, Down:
			return Degraded
		case Unknown:
			whole = Unknown
		case OK, Starting, Draining: // the status of a component that was not checked yet means nothing
		}
	}
	return whole
}

// Sum is what the probes and the ops API show of a report: the status with its reason, the components and the lags.
type Sum struct {
	Status Status
	Ready  bool
	// Reason says why the connector is not ready, "" if it is.
	Reason     string
	Components []Component
	// PartitionLags and LastCheckTime are those of [LagStatus], empty and nil before the first check.
	PartitionLags map[string]int64
	LastCheckTime *time.Time
}

// Sum returns the summary of the report.
func (r Report) Sum() Sum {
	s := Sum{Components: r.Components(), Ready: true, PartitionLags: r.Lag.lags(), LastCheckTime: r.Lag.checked()}
	s.Status = r.status(s.Components)
	if err := r.Ready(); err != nil {
		s.Ready, s.Reason = false, err.Error()
	}
	return s
}

// WaitsFor returns the holds that hold all topics at once: the member reads nothing until they end.
func (r Report) WaitsFor() []Held {
	waits := []Held{}
	for _, h := range r.Holds {
		if h.Topic == "" {
			waits = append(waits, h.Held())
		}
	}
	return waits
}

// Held is a hold with the event or the command that ends it.
type Held struct {
	Hold
	EndsBy string `json:"ends_by"`
	// Command is the command line that ends the hold, "" if no command does.
	Command string `json:"command,omitempty"`
}

// Held adds to the hold the event and the command that end it.
func (h Hold) Held() Held {
	command := h.Ending
	if command == "" {
		command = hold.Reason(h.Reason).Command(h.Topic, h.Partition, h.Offset)
	}
	return Held{Hold: h, EndsBy: hold.Reason(h.Reason).EndsBy(), Command: command}
}
