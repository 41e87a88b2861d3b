package ops

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/health"
)

// collector turns the report into metrics when they are asked for, so that they cannot get stale.
type collector struct {
	report                    func() health.Report
	lag, total, healthy, held *prometheus.Desc
}

// NewCollector returns the metrics of the report: kafka_consumer_lag of each partition whose lag is known,
// kafka_consumer_total_lag, kafka_consumer_healthy (1 if the readiness check passes) and sluice_partition_held. report
// is called for each scrape and must not block.
func NewCollector(report func() health.Report) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		report:  report,
		lag:     desc("kafka_consumer_lag", "Offsets of a partition that are not in the table yet.", "group", "topic", "partition"),
		total:   desc("kafka_consumer_total_lag", "Sum of kafka_consumer_lag over the partitions of this member.", "group"),
		healthy: desc("kafka_consumer_healthy", "1 if the readiness check passes, else 0.", "group"),
		held:    desc("sluice_partition_held", "1 while a partition stands still for this reason.", "topic", "partition", "reason"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.lag, c.total, c.healthy, c.held} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	r := c.report()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, p := range r.Partitions {
		if lag, known := p.Lag(); known {
			gauge(c.lag, float64(lag), r.Group, p.Topic, strconv.Itoa(int(p.ID)))
		}
	}
	for _, h := range r.Holds {
		gauge(c.held, 1, h.Topic, strconv.Itoa(int(h.Partition)), h.Reason)
	}
	healthy := 0.0
	if r.Ready() == nil {
		healthy = 1
	}
	gauge(c.total, float64(r.TotalLag()), r.Group)
	gauge(c.healthy, healthy, r.Group)
}
