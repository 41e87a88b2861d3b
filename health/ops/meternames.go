package ops

import "strings"

// dotted are the metrics that Micrometer's way of naming calls otherwise than by their Prometheus name with dots: counters
// without _total.
var dotted = map[string]string{
	"worker_dlq_messages_total": "worker.dlq.messages",
	"worker_dlq_replayed_total": "worker.dlq.replayed",
	"worker_retry_count_total":  "worker.retry.count",
}

// meterName is the name of a metric with dots.
func meterName(prometheus string) string {
	if name, known := dotted[prometheus]; known {
		return name
	}
	return strings.ReplaceAll(prometheus, "_", ".")
}

// named reports whether a metric is asked for by this name: with dots, or as Prometheus has it.
func named(prometheus, name string) bool {
	return name == prometheus || name == meterName(prometheus) || name == strings.ReplaceAll(prometheus, "_", ".")
}

// baseUnit is the unit that a metric's name ends in, "" if it does not.
func baseUnit(prometheus string) string {
	name := strings.TrimSuffix(prometheus, "_total")
	for _, unit := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}
