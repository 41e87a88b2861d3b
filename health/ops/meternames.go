package ops

import "strings"

// dotted has the metrics whose Micrometer name is not their Prometheus name with dots: they are counters, whose
// Micrometer names lack _total.
var dotted = map[string]string{
	"worker_dlq_messages_total": "worker.dlq.messages",
	"worker_dlq_replayed_total": "worker.dlq.replayed",
	"worker_retry_count_total":  "worker.retry.count",
}

// meterName returns the name of a metric with dots, as Micrometer has it.
func meterName(prometheus string) string {
	if name, known := dotted[prometheus]; known {
		return name
	}
	return strings.ReplaceAll(prometheus, "_", ".")
}

// named reports whether a request's name means a metric: its Micrometer name, or its Prometheus name with or without
// dots.
func named(prometheus, name string) bool {
	return name == prometheus || name == meterName(prometheus) || name == strings.ReplaceAll(prometheus, "_", ".")
}

// baseUnit returns the unit at the end of a metric's name, "" if there is none.
func baseUnit(prometheus string) string {
	name := strings.TrimSuffix(prometheus, "_total")
	for _, unit := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}
