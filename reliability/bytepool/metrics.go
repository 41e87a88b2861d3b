package bytepool

import "github.com/prometheus/client_golang/prometheus"

var (
	bytesDesc = prometheus.NewDesc("sluice_pool_bytes",
		"Bytes of a memory pool: its size, what is used, and idle buffers that wait for their next use.", []string{"pool", "state"}, nil)
	waitsDesc = prometheus.NewDesc("sluice_pool_waits_total", "Times that a caller had to wait for bytes of a memory pool.", []string{"pool"}, nil)
)

// Collector returns the collector of the metrics of pools; the key of a pool is its label.
func Collector(pools map[string]*Pool) prometheus.Collector { return collector(pools) }

type collector map[string]*Pool

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- bytesDesc
	ch <- waitsDesc
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for name, p := range c {
		p.mu.Lock()
		used, idle, waits := p.used, p.idleBytes, p.waits
		p.mu.Unlock()
		for state, n := range map[string]int64{"size": p.size, "used": used, "idle": idle} {
			ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, float64(n), name, state)
		}
		ch <- prometheus.MustNewConstMetric(waitsDesc, prometheus.CounterValue, float64(waits), name)
	}
}
