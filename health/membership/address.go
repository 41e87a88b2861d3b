package membership

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// MaxAddress is the largest size of a registered address in bytes. The name of a host in it has 253 at most.
const MaxAddress = 300

// errAddress says which form an address must have. It does not quote the address, which may have come from another
// program.
var errAddress = errors.New("it is not http://host:port")

// CheckAddress returns why an address must not be registered or requested, nil if it may be: it is a scheme, a host and
// a port, and nothing else, and the host is neither localhost nor an IP address that fails [Dialable]. A name of DNS
// may still resolve to any address, so the caller also checks each IP address that it connects to with [Dialable].
func CheckAddress(address string) error {
	if len(address) > MaxAddress {
		return fmt.Errorf("it has more than %d bytes", MaxAddress)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return errAddress
	}
	host, port := u.Hostname(), u.Port()
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return errAddress
	}
	if u.Scheme+"://"+net.JoinHostPort(host, port) != address { // a user, a path, a query, or another notation
		return errAddress
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" || !Dialable(ip) {
			return errors.New("its host is not an address of another machine")
		}
		return nil
	}
	if !hostName(host) {
		return errAddress
	}
	if name := strings.ToLower(host); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return errors.New("its host is not an address of another machine")
	}
	return nil
}

// hostName reports whether a text consists of the characters of host names, with a letter among them: a name of digits
// and dots alone is an IP address in a notation of its own.
func hostName(s string) (letters bool) {
	for _, c := range s {
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			letters = true
		case '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return letters && !strings.HasPrefix(s, ".") && !strings.Contains(s, "..")
}

// Dialable reports whether ip may be the address of a member on another machine: it is unicast, and neither loopback
// nor link-local. Cloud providers serve the credentials of a machine at a link-local address.
func Dialable(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsValid() && !ip.IsLoopback() && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() &&
		ip != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
