package health

import "time"

// Canary is how the records fare that a member sends to itself, from Kafka into a table.
type Canary struct {
	Topic string `json:"topic"`
	// Seen is when the last one was seen in the table, nil if none was; Seconds is how long it took.
	Seen    *time.Time `json:"seen"`
	Seconds *float64   `json:"seconds"`
	// Failing is when the first one was sent of those that failed since, nil if the last one arrived.
	Failing *time.Time `json:"failing_since,omitempty"`
	Stage   string     `json:"stage,omitempty"` // of the last failure: produce, or visible
	Error   string     `json:"error,omitempty"`
}
