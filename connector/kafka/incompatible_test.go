package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/reliability/hold"
)

// TestNotKafka: while another server has the addresses of the brokers, requests and the group fail with a hold that says
// so. Once Kafka has them, both work.
func TestNotKafka(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		var other atomic.Bool
		other.Store(true)
		withOther := func(c *Config) {
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if !other.Load() {
					return w.dial(ctx, network, address)
				}
				ours, theirs := net.Pipe()
				go func() {
					_, _ = theirs.Read(make([]byte, 1<<10))
					_, _ = io.WriteString(theirs, "HTTP/1.1 400 Bad Request\r\n\r\n")
					_ = theirs.Close()
				}()
				return ours, nil
			}
		}
		incompatible := func(what string, err error) {
			t.Helper()
			var h *hold.Error
			if !errors.As(err, &h) || h.Reason != hold.KafkaIncompatible || !strings.Contains(h.Detail, "does not speak Kafka's protocol") {
				t.Errorf("%s: %v", what, err)
			}
		}
		r := w.read(LogConfig{}, withOther)
		_, err := r.Topic(t.Context(), "t")
		incompatible("metadata", err)
		a := w.start(func(c *Config, _ *GroupConfig) { withOther(c) }, "t")
		<-a.ended
		incompatible("the group", a.err)

		other.Store(false)
		time.Sleep(time.Minute) // each address is tried twice a minute
		if _, err := r.Topic(t.Context(), "t"); err != nil {
			t.Error(err)
		}
		again := w.rerun(a)
		w.until("joined", a.has(1))
		again()
	})
}
