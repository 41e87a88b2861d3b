package health

// Letters is the state of the dead letters of the pipeline.
type Letters struct {
	// Unresolved are records with a dead letter and without a row, of all members: nil until they were counted once.
	Unresolved []UnresolvedLetters `json:"unresolved"`
	// PerMinute are the dead letters that this member wrote in the last five minutes, as a rate.
	PerMinute float64 `json:"per_minute"`
	// Error says why the count is not complete or old, "" if it is.
	Error string `json:"error,omitempty"`
}

// UnresolvedLetters counts those of one topic and class of error.
type UnresolvedLetters struct {
	Topic string `json:"topic"` // of the records
	Class string `json:"class"`
	Count int64  `json:"count"`
}

// Fingerprints is how much of a topic's window of duplicates this member has in memory.
type Fingerprints struct {
	Topic   string `json:"topic"`
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
}

// Pool is a memory pool with a fixed size.
type Pool struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // bytes, like Used
	Used int64  `json:"used"`
}

// Operations is how well a member knows what operators decided.
type Operations struct {
	// Known is true once the log was read whole. Seq is the newest entry known then, 0 if there is none.
	Known bool  `json:"known"`
	Seq   int64 `json:"seq"`
}
