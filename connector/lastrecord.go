package connector

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// lastRecords shows when each claim of this member last gave a record to a lane, when somebody asks: a claim that is lost
// takes its series with it.
type lastRecords struct {
	status func() Status
	desc   *prometheus.Desc
}

func newLastRecords(status func() Status) *lastRecords {
	return &lastRecords{status, prometheus.NewDesc("sluice_last_record_timestamp_seconds",
		"When this member last read a record of a partition, by its own clock. It is missing until the first one.", []string{"topic", "partition"}, nil)}
}

// Describe implements prometheus.Collector.
func (l *lastRecords) Describe(descs chan<- *prometheus.Desc) { descs <- l.desc }

// Collect implements prometheus.Collector.
func (l *lastRecords) Collect(metrics chan<- prometheus.Metric) {
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
