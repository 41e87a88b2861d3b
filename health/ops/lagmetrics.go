package ops

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/health"
)

// lagMetrics describes the metrics of the last lag check. They exist only for partitions that the member has.
type lagMetrics struct {
	adjusted, freshness, verdict, warning, critical, checked *prometheus.Desc
}

// newLagMetrics describes sluice_adjusted_lag_records, sluice_partition_freshness_seconds and sluice_partition_verdict
// of each partition, as far as they are known, sluice_lag_warning_records and sluice_lag_critical_records of each topic
// with that threshold, and sluice_lag_checked_timestamp_seconds.
func newLagMetrics() lagMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return lagMetrics{
		adjusted: desc("sluice_adjusted_lag_records",
			"Offsets of a partition that readiness goes by: rows of an open batch count as consumed while it is not overdue.", "group", "topic", "partition"),
		freshness: desc("sluice_partition_freshness_seconds", "Age of the oldest record of a partition that is not in the table, by its timestamp.", "topic", "partition"),
		verdict: desc("sluice_partition_verdict", "1 for the verdict on how a partition's lag moves: OK, WARN, STALL, STOP, REWIND, HELD.",
			"topic", "partition", "verdict"),
		warning:  desc("sluice_lag_warning_records", "lag.warning of a topic, if it has one.", "topic"),
		critical: desc("sluice_lag_critical_records", "lag.critical of a topic, if it has one.", "topic"),
		checked:  desc("sluice_lag_checked_timestamp_seconds", "When the ends of partitions were last learnt. What is said of their lag is as old."),
	}
}

func (c *lagMetrics) descs() []*prometheus.Desc {
	return []*prometheus.Desc{c.adjusted, c.freshness, c.verdict, c.warning, c.critical, c.checked}
}

// collect calls gauge for each lag metric of a report.
func (c *lagMetrics) collect(r *health.Report, gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	seen, topics := map[health.TopicPartition]bool{}, map[string]bool{}
	for _, p := range r.Partitions {
		k := health.TopicPartition{Topic: p.Topic, Partition: p.ID}
		// A topic that was created again is listed twice: a second sample with the same labels would fail the scrape.
		if seen[k] {
			continue
		}
		seen[k] = true
		id := strconv.Itoa(int(p.ID))
		if p.Adjusted != nil {
			gauge(c.adjusted, float64(*p.Adjusted), r.Group, p.Topic, id)
		}
		if p.Freshness != nil {
			gauge(c.freshness, *p.Freshness, p.Topic, id)
		}
		if p.Verdict != "" {
			gauge(c.verdict, 1, p.Topic, id, string(p.Verdict))
		}
		if topics[p.Topic] {
			continue
		}
		topics[p.Topic] = true
		if p.Thresholds.Warning > 0 {
			gauge(c.warning, float64(p.Thresholds.Warning), p.Topic)
		}
		if p.Thresholds.Critical > 0 {
			gauge(c.critical, float64(p.Thresholds.Critical), p.Topic)
		}
	}
	if r.Lag != nil && !r.Lag.LastCheckTime.IsZero() {
		gauge(c.checked, float64(r.Lag.LastCheckTime.UnixMilli())/1000)
	}
}
