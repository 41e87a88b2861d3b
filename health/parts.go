package health

// Letters is the state of the dead letters of the pipeline.
type Letters struct {
	// Unresolved counts the unresolved dead letters that all members of the pipeline wrote, as package lettercount
	// defines them; nil before the first count.
	Unresolved []UnresolvedLetters `json:"unresolved"`
	// PerMinute is how many dead letters per minute this member wrote, on average over the last five minutes.
	PerMinute float64 `json:"per_minute"`
	// Error says why the count is incomplete or old, "" if it is neither.
	Error string `json:"error,omitempty"`
}

// UnresolvedLetters is the number of unresolved records of one topic and one class of error.
type UnresolvedLetters struct {
	Topic string `json:"topic"` // the topic of the records
	Class string `json:"class"`
	Count int64  `json:"count"`
}

// Fingerprints is the part of a topic's dedup window that this member has in memory.
type Fingerprints struct {
	Topic   string `json:"topic"`
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
}

// Pool is a memory pool with a fixed size.
type Pool struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // size in bytes, like Used
	Used int64  `json:"used"`
}

// Operations is what a member has read of the operations log.
type Operations struct {
	// Known is true once the operations log was read completely. Seq is the number of the newest entry that this member
	// has read, 0 if there is none.
	Known bool  `json:"known"`
	Seq   int64 `json:"seq"`
}
