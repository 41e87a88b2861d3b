package ops

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/health"
	"sluice/reliability/hold"
)

// collector turns the report into metrics at each scrape, so that they are never stale.
type collector struct {
	report                            func() health.Report
	lag, total, healthy, held, reason *prometheus.Desc
	watched                           lagMetrics
}

// NewCollector returns the metrics of the report: kafka_consumer_lag of each partition whose lag is known,
// kafka_consumer_total_lag, kafka_consumer_healthy (1 if the readiness check passes), sluice_partition_held,
// sluice_held_partitions of each reason (also if it is 0), and the metrics of the lag check. It calls report once for
// each scrape, so that all values of a scrape are of one moment. report must not block.
func NewCollector(report func() health.Report) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		report: report, watched: newLagMetrics(),
		lag:     desc("kafka_consumer_lag", "Offsets of a partition that are not in the table yet.", "group", "topic", "partition"),
		total:   desc("kafka_consumer_total_lag", "Sum of kafka_consumer_lag over the partitions of this member.", "group"),
		healthy: desc("kafka_consumer_healthy", "1 if the readiness check passes, else 0.", "group"),
		held:    desc("sluice_partition_held", "1 while a partition is held for this reason.", "topic", "partition", "reason"),
		reason:  desc("sluice_held_partitions", "Held partitions, by reason. A hold of all of a topic, or of the member, counts as one.", "reason"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range append(c.watched.descs(), c.lag, c.total, c.healthy, c.held, c.reason) {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	r := c.report()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	c.watched.collect(&r, gauge)
	seen := map[health.TopicPartition]bool{}
	for _, p := range r.Partitions {
		k := health.TopicPartition{Topic: p.Topic, Partition: p.ID}
		if lag, known := p.Lag(); known && !seen[k] { // a topic that was created again is listed twice: a second sample with the same labels would fail the scrape
			seen[k] = true
			gauge(c.lag, float64(lag), r.Group, p.Topic, strconv.Itoa(int(p.ID)))
		}
	}
	type heldPartition struct {
		topic, reason string
		partition     int32
	}
	held, byReason := map[heldPartition]bool{}, map[string]int{}
	for _, h := range r.Holds {
		k := heldPartition{h.Topic, h.Reason, h.Partition}
		if held[k] {
			continue // a second sample with the same labels would fail the scrape
		}
		held[k] = true
		byReason[h.Reason]++
		gauge(c.held, 1, h.Topic, strconv.Itoa(int(h.Partition)), h.Reason)
	}
	for _, reason := range hold.Reasons() {
		gauge(c.reason, float64(byReason[string(reason)]), string(reason))
	}
	healthy := 0.0
	if r.Ready() == nil {
		healthy = 1
	}
	gauge(c.total, float64(r.TotalLag()), r.Group)
	gauge(c.healthy, healthy, r.Group)
}
