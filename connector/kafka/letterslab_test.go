//go:build lab

package kafka

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// TestLettersLab runs the conformance list on the cluster whose brokers SLUICE_TEST_KAFKA names, as host:port with
// commas between them.
func TestLettersLab(t *testing.T) {
	addrs := os.Getenv("SLUICE_TEST_KAFKA")
	if addrs == "" {
		t.Fatal("SLUICE_TEST_KAFKA names no cluster")
	}
	for _, tt := range lettersConformance {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newScene(t, strings.Split(addrs, ","), (&net.Dialer{}).DialContext)
			w.prefix = fmt.Sprintf("letters-%d-%s-", time.Now().UnixNano(), strings.ToLower(tt.name))
			tt.run(t, w)
		})
	}
}
