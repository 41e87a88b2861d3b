package api

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"sluice/secure"
	"sluice/secure/tokens"
)

// caller is who sent a request.
type caller struct {
	name    string
	role    tokens.Role
	expires time.Time
	// anonymous is true without a tokens file: anyone on this machine may read.
	anonymous bool
}

// checkHost refuses a request that names another host than this server. Otherwise a web page whose host name resolves
// to this address could use the API from a browser.
func (s *Server) checkHost(r *http.Request) *problem {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	listening, _, _ := net.SplitHostPort(s.config.Ops.Listen) // validated
	switch {
	case secure.Loopback(host), host != "" && host == listening:
		return nil
	case s.web != nil && host != "" && s.web.Value().Names(host):
		return nil
	}
	return newProblem(codeHost, "the host is not this server: use localhost, the address of ops.listen, or a name in the certificate of ops.web_config_file")
}

// checkOrigin refuses a request that a web page of another origin sent. It refuses reads, too, because no such page
// uses the API.
func (s *Server) checkOrigin(r *http.Request) *problem {
	write := r.Clone(r.Context())
	write.Method = http.MethodPost // safe methods would pass
	err := s.origins.Check(write)
	if origin := r.Header.Get("Origin"); err == nil && origin != "" && !isOrigin(origin) {
		err = errors.New("not an origin")
	}
	if err != nil {
		return newProblem(codeOrigin, "a page of another origin sent the request: use the API from a program, or from a page of this server")
	}
	return nil
}

// isOrigin reports whether a text has the form of a header Origin. The check of the origin compares only the host, so
// it would accept a text with a user or a path.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.User == nil && text == u.Scheme+"://"+u.Host
}

// authenticate returns the caller whose token the request has, and counts a wrong token as a failed login. Without a
// tokens file, a request from this machine comes from an anonymous viewer.
func (s *Server) authenticate(r *http.Request, now time.Time) (caller, *problem) {
	if s.tokens == nil {
		client, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !client.Addr().Unmap().IsLoopback() {
			return caller{}, newProblem(codeNoToken, "without ops.tokens_file only this machine may read: set it")
		}
		return caller{name: "anonymous", role: tokens.Viewer, anonymous: true}, nil
	}
	secret, presented := bearer(r)
	if !presented {
		return caller{}, newProblem(codeNoToken, "send the header Authorization: Bearer TOKEN; ops.tokens_file has the hashes of the tokens").
			with("WWW-Authenticate", `Bearer realm="sluice"`)
	}
	client := clientOf(r.RemoteAddr)
	if !s.logins.allowed(client, now) {
		return caller{}, newProblem(codeLogins, "too many wrong tokens came from this address: try again in a minute").with("Retry-After", "60")
	}
	token, found := s.tokens.Value().Find(secret)
	switch {
	case !found:
		s.logins.failed(client, now)
		return caller{}, newProblem(codeBadToken, "the token is not in ops.tokens_file: check it, or ask who keeps that file").
			with("WWW-Authenticate", `Bearer realm="sluice", error="invalid_token"`)
	case token.Expired(now):
		return caller{}, newProblem(codeExpired, "the token expired at %s: ask for a new one", token.Expires.UTC().Format(time.RFC3339)).
			with("WWW-Authenticate", `Bearer realm="sluice", error="invalid_token"`)
	}
	return caller{name: token.Name, role: token.Role, expires: token.Expires}, nil
}

// bearer returns the token of a request. presented is false without the header Authorization. If that header comes
// twice or has another scheme, token is "", which is never right.
func bearer(r *http.Request) (token string, presented bool) {
	all := r.Header.Values("Authorization")
	if len(all) == 0 {
		return "", false
	}
	scheme, token, _ := strings.Cut(all[0], " ")
	if len(all) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", true
	}
	return strings.TrimSpace(token), true
}

// clientOf returns the addresses whose failed logins are counted together: an IPv4 address, or the /64 of an IPv6
// address, because one client may have all of it.
func clientOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := at.Addr().Unmap(), 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.WithZone("").Prefix(bits) // both numbers are valid
	return p
}

// An address may present maxLogins wrong tokens at once, and then one each loginEvery. maxClients bounds the number of
// remembered addresses.
const (
	maxLogins  = 10
	loginEvery = 6 * time.Second
	maxClients = 1024
)

// logins counts failed logins by address.
type logins struct {
	mu  sync.Mutex
	all map[netip.Prefix]time.Time // when all failures of the address are forgiven
}

func newLogins() *logins { return &logins{all: map[netip.Prefix]time.Time{}} }

// allowed reports whether an address may present a token now.
func (l *logins) allowed(client netip.Prefix, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[client].Sub(now) <= (maxLogins-1)*loginEvery
}

// failed counts a failed login. If the table is full, it drops the address whose failures would be forgiven first.
func (l *logins) failed(client netip.Prefix, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := l.all[client]
	if until.Before(now) {
		until = now
	}
	if _, known := l.all[client]; !known && len(l.all) >= maxClients {
		first := client
		for c, t := range l.all {
			if first == client || t.Before(l.all[first]) {
				first = c
			}
		}
		delete(l.all, first)
	}
	l.all[client] = until.Add(loginEvery)
}
