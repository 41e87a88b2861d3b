package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// Probed describes a broker as one connection shows it.
type Probed struct {
	// Cluster is the id of its cluster.
	Cluster string
	// TLS is the protocol version in use, "" for plaintext.
	TLS string
	// CertificateEnds and OurCertificateEnds are the expiry times of the broker's certificate and of ours, zero if
	// there is none.
	CertificateEnds, OurCertificateEnds time.Time
	// Session is the lifetime of the authentication, 0 for ever.
	Session time.Duration
}

// Address returns the address under which the broker wants clients to reach it (advertised.listeners).
func (b Broker) Address() string { return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) }

// Probe opens a separate connection to one address and describes the broker there. A failure to connect is a
// [*dial.Error]; a broker that is too old is a Fatal error.
func (c *Client) Probe(ctx context.Context, address string) (Probed, error) {
	conn, opened, err := c.dialer.Probe(ctx, "tcp", address)
	if err != nil {
		return Probed{}, err
	}
	defer func() { _ = conn.Close() }() // no request is in flight
	p := Probed{Session: opened.Session}
	if s := opened.TLS; s != nil {
		p.TLS = tls.VersionName(s.Version)
		if len(s.PeerCertificates) > 0 {
			p.CertificateEnds = s.PeerCertificates[0].NotAfter
		}
	}
	if opened.Certificate != nil {
		p.OurCertificateEnds = opened.Certificate.NotAfter
	}
	if r, ok := opened.Versions[protocol.Metadata]; !ok || r[0] > metadataVersion || r[1] < metadataVersion {
		return p, tooOld(protocol.Metadata, versionRange{r[0], r[1]}, metadataVersion, metadataVersion)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return p, err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	x := &exchange{}
	e := c.beginMetadata(x, anyBroker, metadataVersion, 0, nil, false)
	x.out = e.request()
	if _, err := x.RawExchange(conn); err != nil {
		return p, fmt.Errorf("metadata: %w", err)
	}
	m, err := decodeMetadata(x.in)
	if err != nil {
		return p, fmt.Errorf("metadata: %w", err)
	}
	p.Cluster = m.Cluster
	return p, nil
}
