package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/internal/config"
	"sluice/reliability"
	"sluice/reliability/bytepool"
)

// dialer opens connections.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// deadBrokers are the ways in which a cluster can be down, each as a dialer to its brokers.
var deadBrokers = map[string]func(t *testing.T) dialer{
	"silent": func(t *testing.T) dialer { // connects, and gets no response, as from a stopped process
		t.Helper()
		return func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			t.Cleanup(func() { _ = theirs.Close() })
			return ours, nil
		}
	},
	"refusing": func(*testing.T) dialer {
		return func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
	},
	"unreachable": func(*testing.T) dialer { // gets no answer, as if packets are lost
		return func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	},
}

// TestLagWatch_OutageOpensTheBreaker: in each kind of outage of Kafka, the polls of the lag watch alone open the
// breaker of Kafka within a minute, with the default settings. The lag report then says that the breaker is open, and
// names the last failure.
func TestLagWatch_OutageOpensTheBreaker(t *testing.T) {
	for name, dial := range deadBrokers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := config.Default()
				client, err := kafka.NewClient(kafka.Config{Brokers: []string{"broker:9092"}, Session: cfg.Kafka.Session, Dial: dial(t)})
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				quiet := slog.New(slog.DiscardHandler)
				log := kafka.NewLog(client, kafka.LogConfig{Memory: bytepool.New(1 << 20)}, quiet, nil)
				guard := reliability.NewGuard("kafka", cfg.Guard(), quiet, nil)

				s := newLagScene(t, "")
				s.lag("orders", 0, 5)
				s.bounds, s.ask = log.Bounds, guard.Try
				down := time.Now()
				stop := s.starts()
				defer stop()
				for !guard.Status().Open {
					if time.Since(down) > time.Minute {
						t.Fatalf("after a minute the breaker is closed: %+v", guard.Status())
					}
					time.Sleep(time.Second)
				}
				why := guard.Status().Err.Error()
				s.next()
				s.next() // a poll has ended that began while the breaker was open
				if got := s.report().Lag.Error; !strings.Contains(got, "circuit breaker is open") || !strings.Contains(got, why) {
					t.Errorf("the lag is not known because %q, and the guard says %q", got, why)
				}
			})
		})
	}
}

// TestLagWatch_ShutdownIsNoOutage: a member that stops during a request does not open the breaker.
func TestLagWatch_ShutdownIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config.Default()
		guard := reliability.NewGuard("kafka", cfg.Guard(), slog.New(slog.DiscardHandler), nil)
		s := newLagScene(t, "")
		s.lag("orders", 0, 5)
		s.ask = guard.Try
		s.bounds = func(ctx context.Context, _ []connector.Position) (map[connector.Partition]connector.Bounds, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for range 2 * cfg.Breaker.Failures {
			stop := s.starts()
			time.Sleep(s.rules.Every + time.Second)
			stop()
		}
		if st := guard.Status(); st.Open || errors.Is(st.Err, context.DeadlineExceeded) {
			t.Errorf("%+v", st)
		}
	})
}
