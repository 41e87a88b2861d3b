// Package ops serves what health knows over HTTP: the probes, the report as JSON and the metrics.
package ops
