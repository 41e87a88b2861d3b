// Package ops serves the health report over HTTP: the probes, the report as JSON and the metrics.
package ops
