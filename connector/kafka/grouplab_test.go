//go:build lab

package kafka

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestGroupLab runs the conformance list on the cluster whose brokers SLUICE_TEST_KAFKA names, as host:port with commas
// between them.
func TestGroupLab(t *testing.T) {
	addrs := os.Getenv("SLUICE_TEST_KAFKA")
	if addrs == "" {
		t.Fatal("SLUICE_TEST_KAFKA names no cluster")
	}
	for _, tt := range conformance {
		t.Run(tt.name, func(t *testing.T) {
			ignore := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, ignore) }) // runs after all other cleanups
			s := newScene(t, strings.Split(addrs, ","), (&net.Dialer{}).DialContext)
			s.prefix = fmt.Sprintf("group-%d-%s-", time.Now().UnixNano(), strings.ToLower(tt.name))
			s.tune = func(c *Config, g *GroupConfig) {
				c.Session = 6 * time.Second
				g.WatchEvery, g.Confirm = time.Second, 300*time.Millisecond
			}
			tt.run(t, s)
		})
	}
}
