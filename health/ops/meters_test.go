package ops_test

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// metered returns a registry with one metric of each kind.
func metered() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	lag := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kafka_consumer_lag", Help: "Lag."}, []string{"topic", "partition"})
	lag.WithLabelValues("orders", "0").Set(5)
	lag.WithLabelValues("orders", "1").Set(7)
	lag.WithLabelValues("users", "0").Set(100)
	letters := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "worker_dlq_messages_total", Help: "Letters."}, []string{"topic"})
	letters.WithLabelValues("a:b,c").Add(3)
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sluice_commit_seconds", Help: "Commits."})
	seconds.Observe(2)
	seconds.Observe(0.5)
	sizes := prometheus.NewSummary(prometheus.SummaryOpts{Name: "sluice_file_bytes", Help: "Files."})
	sizes.Observe(1000)
	records := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sluice_batch_rows", Help: "Rows."})
	records.Observe(7)
	left := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_seconds_to_data_loss", Help: "Left."})
	left.Set(math.Inf(1))
	reg.MustRegister(lag, letters, seconds, sizes, records, left)
	return reg
}

func TestMeters(t *testing.T) {
	base, _ := startOn(t, &connector{}, metered())
	for _, c := range []struct {
		path string
		code int
		body string
	}{
		{"", 200, `{"names":["kafka.consumer.lag","sluice.batch.rows","sluice.commit.seconds","sluice.file.bytes","sluice.seconds.to.data.loss","worker.dlq.messages"]}`},
		{"/kafka.consumer.lag", 200, `{"name":"kafka.consumer.lag","description":"Lag.","measurements":[{"statistic":"VALUE","value":112}],` +
			`"availableTags":[{"tag":"partition","values":["0","1"]},{"tag":"topic","values":["orders","users"]}]}`},
		{"/kafka.consumer.lag?tag=topic:orders", 200, `{"name":"kafka.consumer.lag","description":"Lag.","measurements":[{"statistic":"VALUE","value":12}],` +
			`"availableTags":[{"tag":"partition","values":["0","1"]}]}`},
		{
			"/kafka_consumer_lag?tag=topic:orders&tag=partition:1", 200,
			`{"name":"kafka.consumer.lag","description":"Lag.","measurements":[{"statistic":"VALUE","value":7}],"availableTags":[]}`,
		},
		{
			"/kafka.consumer.lag?tag=topic:orders,partition:0", 200,
			`{"name":"kafka.consumer.lag","description":"Lag.","measurements":[{"statistic":"VALUE","value":5}],"availableTags":[]}`,
		},
		{"/kafka.consumer.lag?tag=topic:none", 404, `{"error":"the metric has no series with these tags"}`},
		{"/kafka.consumer.lag?tag=color:red", 404, `{"error":"the metric has no series with these tags"}`},
		{"/kafka.consumer.lag?tag=topic", 400, `{"error":"a tag has the form key:value"}`},
		{"/kafka.consumer.lag?tag=:orders", 400, `{"error":"a tag has the form key:value"}`},
		{"/worker.dlq.messages", 200, `{"name":"worker.dlq.messages","description":"Letters.","measurements":[{"statistic":"COUNT","value":3}],` +
			`"availableTags":[{"tag":"topic","values":["a:b,c"]}]}`},
		{"/worker.dlq.messages.total", 200, `{"name":"worker.dlq.messages","description":"Letters.","measurements":[{"statistic":"COUNT","value":3}],` +
			`"availableTags":[{"tag":"topic","values":["a:b,c"]}]}`},
		{"/sluice.commit.seconds", 200, `{"name":"sluice.commit.seconds","description":"Commits.","baseUnit":"seconds",` +
			`"measurements":[{"statistic":"COUNT","value":2},{"statistic":"TOTAL_TIME","value":2.5}],"availableTags":[]}`},
		{"/sluice.file.bytes", 200, `{"name":"sluice.file.bytes","description":"Files.","baseUnit":"bytes",` +
			`"measurements":[{"statistic":"COUNT","value":1},{"statistic":"TOTAL","value":1000}],"availableTags":[]}`},
		{"/sluice.batch.rows", 200, `{"name":"sluice.batch.rows","description":"Rows.",` +
			`"measurements":[{"statistic":"COUNT","value":1},{"statistic":"TOTAL","value":7}],"availableTags":[]}`},
		{"/sluice.seconds.to.data.loss", 200, `{"name":"sluice.seconds.to.data.loss","description":"Left.",` +
			`"measurements":[{"statistic":"VALUE","value":"Infinity"}],"availableTags":[]}`},
		{"/nothing", 404, `{"error":"no such metric: /actuator/metrics has all names"}`},
		{"/kafka", 404, `{"error":"no such metric: /actuator/metrics has all names"}`},
	} {
		code, body, _ := request(t, http.MethodGet, base+"/actuator/metrics"+c.path)
		if d := cmp.Diff(c.body, compact(t, body)); d != "" || code != c.code {
			t.Errorf("%s: %d (-want +got):\n%s", c.path, code, d)
		}
	}
}

// slow is a collector whose Collect waits until the test lets it finish.
type slow struct {
	desc          *prometheus.Desc
	asked, finish chan struct{}
}

func (s slow) Describe(out chan<- *prometheus.Desc) { out <- s.desc }

func (s slow) Collect(out chan<- prometheus.Metric) {
	s.asked <- struct{}{}
	<-s.finish
	out <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, 1)
}

// TestManyScrapes: if as many scrapes as allowed are being answered, another one gets a 503. Probes are answered
// meanwhile.
func TestManyScrapes(t *testing.T) {
	s := slow{desc: prometheus.NewDesc("slow", "Slow.", nil, nil), asked: make(chan struct{}), finish: make(chan struct{})}
	reg := prometheus.NewRegistry()
	reg.MustRegister(s)
	c := &connector{report: reports[0].report}
	base, _ := startOn(t, c, reg)
	const all = 4 // the same as the constant scrapes
	codes := make(chan int, 2*all)
	var asking sync.WaitGroup
	for range all {
		for _, path := range []string{"/actuator/metrics", "/actuator/prometheus"} {
			asking.Go(func() {
				code, _, _ := request(t, http.MethodGet, base+path)
				codes <- code
			})
		}
	}
	for range 2 * all {
		<-s.asked
	}
	for path, want := range map[string]int{
		"/metrics": 503, "/actuator/prometheus": 503, "/actuator/metrics": 503, "/actuator/metrics/slow": 503,
		"/health": 200, "/health/live": 200, "/health/ready": 200, "/actuator/health": 200,
	} {
		if code, body, _ := request(t, http.MethodGet, base+path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	close(s.finish)
	asking.Wait()
	close(codes)
	for code := range codes {
		if code != 200 {
			t.Error(code)
		}
	}
}

// TestEveryMetricHasAMeter: each metric of /metrics is listed at /actuator/metrics and has a response there.
func TestEveryMetricHasAMeter(t *testing.T) {
	reg := metered()
	base, _ := startOn(t, &connector{}, reg)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Names []string }
	_, body, _ := request(t, http.MethodGet, base+"/actuator/metrics")
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Names) != len(families) || !slices.IsSorted(list.Names) {
		t.Errorf("%v %v", list.Names, err)
	}
	for _, name := range list.Names {
		if code, body, _ := request(t, http.MethodGet, base+"/actuator/metrics/"+name); code != 200 || !strings.Contains(body, `"name": "`+name+`"`) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}
