//go:build lab && linux

package e2e

import (
	"testing"
	"time"

	"sluice/test/lab"
)

// TestOutagesMakeItWait makes the store answer 503 to every request, then cuts the connections to Kafka, then kills the
// broker. Each time the member must wait, stay alive by both probes, and continue by itself.
func TestOutagesMakeItWait(t *testing.T) {
	s := newScene(t, 4)
	proxy := s.proxy()
	path, alive := s.livenessFile()
	m := s.start(through(proxy), overCable, alive)
	s.produce(4000)
	s.awaitRows(4000)
	stayed := m.keepsAlive(path)

	fault := proxy.Break(lab.Any, 1<<16, lab.Answer(503, false))
	s.produce(4000)
	s.met(fault)
	m.await("it reports that the store is down", func(r report) bool { return len(r.Holds) > 0 || r.Status != "ok" })
	proxy.Heal()
	s.awaitRows(8000)

	shared.cable.Cut()
	s.produce(4000)             // the test reaches the broker through a listener that is not cut
	time.Sleep(7 * time.Second) // longer than the member's session of 6 s
	shared.cable.Connect(shared.kafka.Proxied)
	s.awaitRows(12_000)

	if err := shared.kafka.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := shared.kafka.Start(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.produce(4000)
	s.awaitRows(16_000)
	stayed()
	m.drain()
	s.check("--readers", "deltalake")
}
