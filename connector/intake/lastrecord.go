package intake

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
)

// LastRecords is a collector that shows when each claim of this member last enqueued a record. It reads the status
// at each scrape, so a lost claim has no series.
type LastRecords struct {
	status func() connector.Status
	desc   *prometheus.Desc
}

// NewLastRecords returns a collector for the claims that status returns.
func NewLastRecords(status func() connector.Status) *LastRecords {
	return &LastRecords{status, prometheus.NewDesc("sluice_last_record_timestamp_seconds",
		"When this member last read a record of a partition, by its own clock. Missing until the first record.", []string{"topic", "partition"}, nil)}
}

// Describe implements [prometheus.Collector].
func (l *LastRecords) Describe(descs chan<- *prometheus.Desc) { descs <- l.desc }

// Collect implements [prometheus.Collector].
func (l *LastRecords) Collect(metrics chan<- prometheus.Metric) {
	seen := map[string]bool{}
	for _, c := range l.status().Claims {
		if c.LastRecord.IsZero() || seen[c.Partition.String()] { // if the topic was created again, there may be a second claim with the same labels, which would fail the scrape
			continue
		}
		seen[c.Partition.String()] = true
		metrics <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, float64(c.LastRecord.UnixMilli())/1000,
			c.Partition.Topic, strconv.Itoa(int(c.Partition.ID)))
	}
}
