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

// Config says how to reach a cluster.
type Config struct {
	// Brokers are the addresses to start from, host:port. One that answers is enough.
	Brokers []string
	// ClientID is what brokers show in their logs and quotas. Empty means "sluice".
	ClientID string
	// Session is how long the group waits for a silent member, 30 s if zero. Half of it is the time that any exchange
	// with a broker may take, so that one hung exchange does not cost the membership.
	Session time.Duration
	// TLS is nil for PLAINTEXT, SASL nil for no authentication.
	TLS  *dial.TLS
	SASL *dial.SASL
	// Dial opens the connections below TLS; nil means TCP. It must end when its context does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger hears of files that changed, Registerer counts connections. Both may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const (
	defaultSession = 30 * time.Second
	// metadataTTL is how old kafka-go's own list of brokers may become. It knows no topics.
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
	versions map[int32]map[protocol.ApiKey]versionRange // by broker id
}

// NewClient checks cfg and returns a client, which connects when it is used.
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
			// Empty and not nil: brokers only, instead of all topics of the cluster every few seconds. Requests that
			// kafka-go routes by topic (its Writer) need another transport.
			MetadataTopics: []string{},
		}, dialer.DialContext), // with TLS and SASL: kafka-go hides why a broker refuses
		versions: map[int32]map[protocol.ApiKey]versionRange{},
	}, nil
}

// Close closes the connections. Exchanges under way fail, and so do later ones.
func (c *Client) Close() { c.transport.close() }

// timeout is the time that one exchange may take.
func (c *Client) timeout() time.Duration { return c.cfg.Session / 2 }

// requests makes requests of kafka-go's own types, for APIs whose encoding there is sound: the offsets of groups. The
// context must have a deadline: only that reaches the socket.
func (c *Client) requests() *kafka.Client {
	return &kafka.Client{Addr: c.addr, Transport: c.transport, Timeout: c.timeout()}
}
