package health

// Ends says what ends a hold of this reason. The commands that it calls later ones do not exist in this version. An
// unknown reason gets an empty text.
func Ends(reason string) string { return ends[reason] }

var ends = map[string]string{
	"behind_log_start": "an operator: Kafka deleted records before they were read, and they are lost; accepting the gap takes a later version " +
		"(offsets accept-gap)",
	"ahead_of_log_end": "an operator: the log ends before the position, so it is not the log that was read; if the cluster was restored from a " +
		"backup, setting the position takes a later version (offsets set)",
	"truncated":     "an operator: the broker lost records that the table has; setting the position takes a later version (offsets set)",
	"topic_missing": "by itself once the topic exists; else correct the name in topics",
	"topic_recreated": "an operator: the topic was deleted and created again; a new pipeline name and table read it from its start, taking " +
		"it over takes a later version (offsets adopt)",
	"cluster_changed": "an operator: correct kafka.brokers; taking over positions of another cluster takes a later version (offsets adopt)",
	"unknown_history": "an operator: the topic was read before, by another pipeline or group, and the table does not say how far; correct " +
		"pipeline, kafka.group or the table, starting anew takes a later version (offsets start)",
	"table_replaced":    "an operator: the table was created anew at the same place; restore it, or use another table or pipeline name. Looked at each minute",
	"table_unsupported": "an operator: take the feature named in the detail off the table, or use another table. Looked at each minute",
	"schema_conflict":   "an operator: make the schema in config.yaml and the table's agree. Looked at each minute",
	"contested":         "by itself once no other writer moves the position any more: look for a second connector of the same pipeline",
	"commit_undecided":  "by itself once the store answers whether the commit took effect",
	"poison": "an operator: correct the schema in config.yaml if the record is right; skipping the record takes a later version " +
		"(offsets skip)",
	"corrupt_batch":  "an operator: look at the broker's disk and replicas; skipping the record batch takes a later version (offsets skip)",
	"oversize":       "an operator: give the process more memory; skipping the record batch takes a later version (offsets skip)",
	"store_down":     "by itself once the store answers",
	"store_denied":   "by itself once the store's permissions are right: keys and bucket policy. Looked at each minute",
	"kafka_down":     "by itself once Kafka answers",
	"paused":         "an operator: connector resume, with the topic or partition",
	"operations_log": "an operator: put the entry that connector audit verify names back as it was; until then nobody knows what is paused",
	"kafka_denied":   "by itself once Kafka's permissions are right: Read and Describe on the topic, Read on the group. Looked at each minute",
}
