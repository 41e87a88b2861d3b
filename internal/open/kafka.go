// Package open opens the Kafka client and the stores that config.yaml names.
package open

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector/kafka"
	"sluice/connector/kafka/dial"
	"sluice/internal/config"
)

// Kafka returns a client of the configured cluster. It connects at the first request; the caller closes it. dialer, logger
// and reg may be nil.
func Kafka(c *config.Config, dialer func(ctx context.Context, network, address string) (net.Conn, error), logger *slog.Logger,
	reg prometheus.Registerer,
) (*kafka.Client, error) {
	k := c.Kafka
	cfg := kafka.Config{Brokers: k.Brokers, Session: k.Session, Dial: dialer, Logger: logger, Registerer: reg}
	if t := k.TLS; t.Enabled {
		cfg.TLS = &dial.TLS{
			CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName,
			InsecureSkipVerify: t.InsecureSkipVerify,
		}
	}
	if s := k.SASL; s.Mechanism != "none" {
		cfg.SASL = &dial.SASL{
			Mechanism: dial.Mechanism(strings.ToUpper(s.Mechanism)), Username: s.Username, Password: string(s.Password),
			PasswordFile: s.PasswordFile, TokenFile: s.TokenFile, InsecurePlaintext: s.InsecurePlaintext,
		}
	}
	client, err := kafka.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	if logger != nil && cfg.TLS != nil && cfg.TLS.InsecureSkipVerify {
		logger.Warn("kafka.tls.insecure_skip_verify: the client accepts any certificate as the broker's")
	}
	if logger != nil && cfg.TLS == nil && cfg.SASL != nil && cfg.SASL.InsecurePlaintext {
		logger.Warn("kafka.sasl.insecure_plaintext: anyone on the network path can read or guess the secret")
	}
	return client, nil
}
