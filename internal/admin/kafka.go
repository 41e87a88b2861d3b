package admin

import (
	"context"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector/kafka"
	"sluice/internal/config"
	"sluice/internal/lookup"
	"sluice/internal/open"
	"sluice/reliability"
)

// kafkaQueries sends the requests of a command to Kafka. retry repeats a request until it succeeds, until it fails with
// an error that is not transient, or until ctx ends.
type kafkaQueries struct {
	retry  func(func(context.Context) error) error
	client *kafka.Client
	log    *kafka.Log
	group  *kafka.Group
}

func newKafkaQueries(ctx context.Context, c *config.Config) (*kafkaQueries, error) {
	k, quiet := c.Kafka, slog.New(slog.DiscardHandler) // failures are returned as errors, so they are not logged
	client, err := open.Kafka(c, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return &kafkaQueries{
		retry:  lookup.Patience(ctx, reliability.NewGuard("kafka", c.Guard(), quiet, nil)),
		client: client,
		log:    kafka.NewLog(client, kafka.LogConfig{Memory: c.Budget.Pools().Fetch}, quiet, prometheus.NewRegistry()), // these metrics are not exported
		group: kafka.NewGroup(client, kafka.GroupConfig{
			Group: k.Group, Optional: c.LaterTopics, Session: k.Session, Matches: func(topic string) bool { _, meant, err := c.Route(topic); return meant && err == nil },
			Beyond: c.Beyond,
		}, quiet, nil),
	}, nil
}

func (q *kafkaQueries) close() { q.client.Close() }

// Reachable turns an address to listen on into one to connect to: an unspecified host becomes 127.0.0.1.
func Reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
