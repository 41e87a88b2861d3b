package health

import "time"

// Canary is the state of the canary: a member produces test records to Kafka and then searches the table for them.
type Canary struct {
	Topic string `json:"topic"`
	// Seen is when a canary record was last found in the table, nil if none was. Seconds is the time from before that
	// record was sent until it was found, nil if none was.
	Seen    *time.Time `json:"seen"`
	Seconds *float64   `json:"seconds"`
	// Failing is when the first of the canary records that failed in a row was sent. It is nil if the last record was
	// found.
	Failing *time.Time `json:"failing_since,omitempty"`
	Stage   string     `json:"stage,omitempty"` // the stage of the last failure: produce, or visible
	Error   string     `json:"error,omitempty"`
}
