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

// Probed is what a broker showed of itself.
type Probed struct {
	// Cluster is the id of its cluster.
	Cluster string
	// TLS is the version spoken, "" for plaintext.
	TLS string
	// CertificateEnds and OurCertificateEnds are when the broker's certificate and ours expire; zero if none was shown.
	CertificateEnds, OurCertificateEnds time.Time
	// Session is how long the authentication counts, 0 for ever.
	Session time.Duration
}

// Address is where the broker tells clients to reach it (advertised.listeners).
func (b Broker) Address() string { return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) }

// Probe opens a connection of its own to one address and asks what is there. An error in opening it is a [*dial.Error];
// a broker that is too old for us is a Fatal one.
func (c *Client) Probe(ctx context.Context, address string) (Probed, error) {
	conn, opened, err := c.dialer.Probe(ctx, "tcp", address)
	if err != nil {
		return Probed{}, err
	}
	defer func() { _ = conn.Close() }() // nothing is under way
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
