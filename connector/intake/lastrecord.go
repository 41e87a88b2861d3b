package intake

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
)

// LastRecords shows when each claim of this member last gave a record to a lane, when somebody asks: a claim that is lost
// takes its series with it.
type LastRecords struct {
	status func() connector.Status
	desc   *prometheus.Desc
}

// NewLastRecords returns a collector of the last records of what status returns.
func NewLastRecords(status func() connector.Status) *LastRecords {
	return &LastRecords{status, prometheus.NewDesc("sluice_last_record_timestamp_seconds",
		"When this member last read a record of a partition, by its own clock. It is missing until the first one.", []string{"topic", "partition"}, nil)}
}

// Describe implements prometheus.Collector.
func (l *LastRecords) Describe(descs chan<- *prometheus.Desc) { descs <- l.desc }

// Collect implements prometheus.Collector.
func (l *LastRecords) Collect(metrics chan<- prometheus.Metric) {
	told := map[string]bool{}
	for _, c := range l.status().Claims {
		if c.LastRecord.IsZero() || told[c.Partition.String()] { // a topic that was created again: the same labels twice fail the scrape
			continue
		}
		told[c.Partition.String()] = true
		metrics <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, float64(c.LastRecord.UnixMilli())/1000,
			c.Partition.Topic, strconv.Itoa(int(c.Partition.ID)))
	}
}
