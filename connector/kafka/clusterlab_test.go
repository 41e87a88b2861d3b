//go:build lab

package kafka

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"sluice/connector"
	"sluice/test/lab"
)

// TestClusterLab tests behaviour that needs several real brokers. It starts the version that SLUICE_TEST_KAFKA_VERSION
// names, by default the newest.
func TestClusterLab(t *testing.T) {
	c, err := lab.StartKafkaCluster(t.Context(), lab.KafkaClusterOptions{
		Dir: t.TempDir(), Version: os.Getenv("SLUICE_TEST_KAFKA_VERSION"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for name, run := range map[string]func(*testing.T, *cluster, *lab.KafkaCluster){
		"NearestReplica": testClusterNearestReplica,
		"Throttled":      testClusterThrottled,
	} {
		t.Run(name, func(t *testing.T) { run(t, newScene(t, c.Addrs(), (&net.Dialer{}).DialContext), c) })
	}
}

// source returns the id of the broker from which the Log reads the partition now.
func (r *reader) source(p connector.Partition) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.cursors[p]; c != nil {
		return c.source()
	}
	return noBroker
}

// testClusterNearestReplica: a member in a rack reads from the replica there, from the leader while that broker is
// down, and from the replica again afterwards.
func testClusterNearestReplica(t *testing.T, w *cluster, c *lab.KafkaCluster) {
	w.create("near", 1)
	if err := c.Place(t.Context(), "near", 0, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	r := w.read(LogConfig{Rack: "r3"}, func(cfg *Config) { cfg.Session = 6 * time.Second })
	p := r.partitions("near")[0]
	r.from(p, 0, -1)
	records := 0
	more := func(from int32) {
		t.Helper()
		r.until(time.Minute, func() bool {
			if r.source(p) == from && r.records() == records {
				return true
			}
			w.produce("near", 0, 10, fmt.Sprint(records, "-"))
			records += 10
			r.within(300*time.Millisecond, func() bool { return r.records() == records })
			return false
		})
	}
	more(3)
	if err := c.Broker(3).Kill(); err != nil {
		t.Fatal(err)
	}
	more(1)
	if err := c.Broker(3).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.InSync(t.Context(), "near"); err != nil {
		t.Fatal(err)
	}
	more(3) // the leader names the replica again in its next response
	if r.held[p] != nil || int(r.at[p].Next) != records {
		t.Errorf("held by %v at %d of %d", r.held[p], r.at[p].Next, records)
	}
}

// testClusterThrottled: a broker that throttles by quota gets fewer requests.
func testClusterThrottled(t *testing.T, w *cluster, _ *lab.KafkaCluster) {
	const client = "throttled"
	name := client
	_, err := w.admin.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: 80_000}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.create("quota", 1)
	for range 10 {
		w.produce("quota", 0, 1000, string(make([]byte, 100))) // ten times 110 kB; brokers average over ten seconds
	}
	r := w.read(LogConfig{PartitionBytes: 200_000}, func(cfg *Config) { cfg.ClientID = client })
	p := r.partitions("quota")[0]
	began := time.Now()
	r.from(p, 0, -1)
	r.until(2*time.Minute, func() bool { return r.records() == 10_000 })
	throttled, requests := r.metric("sluice_fetch_throttled_seconds_total"), r.metric("sluice_fetch_requests_total")
	t.Logf("1.1 MB in %v, %v requests, throttled for %v s", time.Since(began).Round(time.Second), requests, throttled)
	if throttled < 1 || requests > 30 {
		t.Errorf("%v requests, throttled for %v s", requests, throttled)
	}
}
