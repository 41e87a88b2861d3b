package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/connector/kafka/dial"
)

// Config configures a [Client].
type Config struct {
	// Brokers are the addresses to start from, host:port. One that answers is enough.
	Brokers []string
	// ClientID names this client in the brokers' logs and quotas, "sluice" if empty.
	ClientID string
	// Session is the group's session timeout, 30 s if zero. Half of it is the limit for any exchange with a broker,
	// so that one hung exchange does not cost the membership.
	Session time.Duration
	// TLS is nil for PLAINTEXT, SASL nil for no authentication.
	TLS  *dial.TLS
	SASL *dial.SASL
	// Dial opens the TCP connections; nil means net.Dialer. It must return when its context ends.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger logs when the content of a file with certificates or credentials changes; Registerer gets the metrics of
	// the connections. Both may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const (
	defaultSession = 30 * time.Second
	// metadataTTL is the interval at which kafka-go itself requests the list of brokers. That request names no topics.
	metadataTTL = 5 * time.Second
)

// Client holds the connections to one cluster. It is safe for concurrent use.
type Client struct {
	cfg       Config
	addr      net.Addr
	dialer    *dial.Dialer
	transport *transport
	corr      atomic.Int32

	mu       sync.Mutex
	versions map[int32]map[protocol.ApiKey]versionRange // the API versions of each broker, by its id
}

// NewClient validates cfg and returns a client. It connects when it is first used.
func NewClient(cfg Config) (*Client, error) {
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("no brokers to start from")
	}
	for _, b := range cfg.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			return nil, fmt.Errorf("broker %q: %w", b, err)
		}
	}
	cfg.ClientID = cmp.Or(cfg.ClientID, "sluice")
	cfg.Session = cmp.Or(cfg.Session, defaultSession)
	dialer, err := dial.New(dial.Config{
		ClientID: cfg.ClientID, Timeout: cfg.Session / 6, TLS: cfg.TLS, SASL: cfg.SASL, Own: own, Dial: cfg.Dial,
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	return &Client{
		cfg:    cfg,
		addr:   kafka.TCP(cfg.Brokers...),
		dialer: dialer,
		transport: newTransport(&kafka.Transport{
			DialTimeout: cfg.Session / 6,
			ClientID:    cfg.ClientID,
			MetadataTTL: metadataTTL,
			// The list is empty and not nil, so that kafka-go's own metadata requests ask for brokers only. With nil
			// they would ask for all topics every few seconds. A consequence: kafka-go cannot route requests by topic
			// with this transport, so its Writer cannot be used.
			MetadataTopics: []string{},
		}, dialer.DialContext), // DialContext also makes the TLS handshake and authenticates, because kafka-go would hide why a broker refuses
		versions: map[int32]map[protocol.ApiKey]versionRange{},
	}, nil
}

// Close closes the connections. Exchanges in flight fail, and so do later ones.
func (c *Client) Close() { c.transport.close() }

// timeout returns the time limit of one exchange with a broker.
func (c *Client) timeout() time.Duration { return c.cfg.Session / 2 }

// requests returns a kafka-go client for the APIs that kafka-go encodes and decodes correctly, such as OffsetFetch and
// DescribeConfigs. The context of each request must have a deadline, because only a deadline reaches the socket.
func (c *Client) requests() *kafka.Client {
	return &kafka.Client{Addr: c.addr, Transport: c.transport, Timeout: c.timeout()}
}
