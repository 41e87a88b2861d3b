package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/segmentio/kafka-go"
)

// counted is a connection to a broker that stops answering after a number of requests. The test counts the open ones.
type counted struct {
	net.Conn
	open   *atomic.Int64
	left   *atomic.Int64
	closed atomic.Bool
}

func (c *counted) Write(p []byte) (int, error) {
	if c.left.Add(-1) < 0 {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *counted) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// TestClient_CloseEndsConnections: if a client is closed during any of its operations, no connection stays open, no
// later call opens one, and no goroutine remains.
func TestClient_CloseEndsConnections(t *testing.T) {
	for requests := range 9 {
		t.Run(fmt.Sprint("silent behind ", requests), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *cluster) {
				var open, left, dialed atomic.Int64
				left.Store(int64(requests))
				c, err := NewClient(Config{Brokers: s.addrs, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := s.dial(ctx, network, address)
					if err != nil {
						return nil, err
					}
					dialed.Add(1)
					open.Add(1)
					return &counted{Conn: conn, open: &open, left: &left}, nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					for _, broker := range []int32{anyBroker, 0, 1} {
						_, _ = c.requestVersions(t.Context(), broker)
					}
				}()
				synctest.Wait()
				c.Close()
				synctest.Wait()
				if n := open.Load(); n != 0 {
					t.Errorf("%d of %d connections stay open", n, dialed.Load())
				}
				<-done
				before := dialed.Load()
				if _, err := c.requestVersions(t.Context(), anyBroker); !errors.Is(err, net.ErrClosed) {
					t.Errorf("an exchange: %v", err)
				}
				if _, err := c.requests().Metadata(t.Context(), &kafka.MetadataRequest{}); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a request of kafka-go: %v", err)
				}
				if n := dialed.Load() - before; n != 0 || open.Load() != 0 {
					t.Errorf("%d connections are opened, %d stay open", n, open.Load())
				}
			})
		})
	}
}
