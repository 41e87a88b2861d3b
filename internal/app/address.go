package app

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"sluice/health/membership"
	"sluice/internal/config"
)

// lookupTimeout bounds the search of this machine's address for each broker.
const lookupTimeout = 500 * time.Millisecond

// advertiser finds the address under which other machines reach the health server of this member. Only the goroutine
// that sends heartbeats uses it.
type advertiser struct {
	config *config.Config
	listen net.Addr // of the health server; nil without one
	logger *slog.Logger
	found  string
	logged bool
}

// address returns the address to register. It returns "" if the member has none, or has not found it yet. It never
// returns an address such as 127.0.0.1: a reader on another host would reach itself there.
func (a *advertiser) address(ctx context.Context) string {
	set := a.config.Members.Address
	switch {
	case a.found != "" || a.listen == nil || set == config.NoAddress:
		return a.found
	case set != config.AutoAddress:
		a.found = "http://" + set
		return a.found
	}
	address := a.listen.String()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	ip, err := netip.ParseAddr(host)
	if err == nil && ip.IsUnspecified() {
		ip = outgoing(ctx, a.config.Kafka.Brokers)
	}
	if ip = ip.WithZone("").Unmap(); membership.Dialable(ip) {
		a.found = "http://" + net.JoinHostPort(ip.String(), port)
		a.logger.InfoContext(ctx, "other members read holds of this member at this address", "address", a.found)
	} else if !a.logged {
		a.logged = true
		a.logger.WarnContext(ctx, "no address for other members to read holds of this member; set members.address to host:port, or to none", "health", address)
	}
	return a.found
}

// outgoing returns the IP address of this machine towards the first broker that has a route from an address that other
// machines may reach. It sends no packet: connecting a UDP socket only chooses the route.
func outgoing(ctx context.Context, brokers []string) netip.Addr {
	for _, broker := range brokers {
		if ip := local(ctx, broker); membership.Dialable(ip) {
			return ip
		}
	}
	return netip.Addr{}
}

// local returns the IP address of this machine on the route to an address, the zero Addr if there is none.
func local(ctx context.Context, address string) netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	from, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().WithZone("").Unmap()
}
