package health

import "time"

// Canary is the state of the canary: records that a member produces to Kafka and then searches in the table.
type Canary struct {
	Topic string `json:"topic"`
	// Seen is when a canary record was last found in the table, nil if none was found yet. Seconds is the time from
	// sending that record until then.
	Seen    *time.Time `json:"seen"`
	Seconds *float64   `json:"seconds"`
	// Failing is when the first canary record of the present failures was sent, nil if the last record arrived.
	Failing *time.Time `json:"failing_since,omitempty"`
	Stage   string     `json:"stage,omitempty"` // the stage of the last failure: produce, or visible
	Error   string     `json:"error,omitempty"`
}
