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

// questions are what commands ask Kafka, each repeated until there is an answer or ctx ends.
type questions struct {
	ask    func(func(context.Context) error) error
	client *kafka.Client
	log    *kafka.Log
	group  *kafka.Group
}

func newQuestions(ctx context.Context, c *config.Config) (*questions, error) {
	k, quiet := c.Kafka, slog.New(slog.DiscardHandler) // what goes wrong comes back as an error
	client, err := open.Kafka(c, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return &questions{
		ask:    lookup.Patience(ctx, reliability.NewGuard("kafka", c.Guard(), quiet, nil)),
		client: client,
		log:    kafka.NewLog(client, kafka.LogConfig{Memory: c.Budget.Pools().Fetch}, quiet, prometheus.NewRegistry()), // no scrape reads these metrics
		group: kafka.NewGroup(client, kafka.GroupConfig{
			Group: k.Group, Optional: c.LaterTopics, Session: k.Session, Matches: func(topic string) bool { _, meant, err := c.Route(topic); return meant && err == nil },
			Beyond: c.Beyond,
		}, quiet, nil),
	}, nil
}

func (q *questions) close() { q.client.Close() }

// Reachable is an address to listen on as one to connect to.
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
