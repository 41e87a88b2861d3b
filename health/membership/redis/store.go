// Package redis keeps registrations in Redis, where other programs can read them: the key worker:connector:<id> is JSON
// that expires with its member's TTL.
//
//	{"timestamp": …, "status": "RUNNING", "last_message_at": …, "consumer_lag": …, "id": …, "pipeline": …, "group": …, "ttl_ms": …,
//	 "address": "http://host:port"}
//
// Times are milliseconds since 1970 by the server's clock; unknown values are null. Beside the registrations each scope
// has an index of four keys, sluice:members:<pipeline>:<group>:…, with names escaped as in URLs: seen and expires
// (sorted sets of times), status and last (hashes). Nothing is ever found by KEYS or SCAN.
//
// Each call is one script, which is atomic and takes the time from the server. A script touches keys of several slots,
// so Redis Cluster is refused; replicas behind one address are fine. Redis 5 or newer is needed, because before it a
// script that asks for the time cannot write.
package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"sluice/health/membership"
	"sluice/health/membership/redis/resp"
	"sluice/secure"
)

const (
	// registration is how the key of a member's registration begins.
	registration = "worker:connector:"
	// indexLasts is how long the index stays after the last heartbeat of any member of the scope.
	indexLasts = 7 * 24 * time.Hour
	// callTimeout bounds dialing, writing and reading, each by itself: a call takes at most three times as long, and
	// ends earlier if ctx ends.
	callTimeout = 2 * time.Second
	// connections is the largest number of connections of a store: a member sends one request at a time.
	connections = 2
	// maxBytes limits the reply with the list of members. A registration of Sluice has some hundred bytes.
	maxBytes = 8 << 20
	// quoted is the number of characters of a foreign name that an error text shows.
	quoted = 100
)

//go:embed beat.lua
var beatScript string

//go:embed leave.lua
var leaveScript string

//go:embed members.lua
var membersScript string

//go:embed sweep.lua
var sweepScript string

// Store implements [membership.Store] in Redis.
type Store struct {
	client                      *goredis.Client
	scope                       membership.Scope
	index                       []string // names of the keys seen, expires, status and last
	beat, leave, members, sweep *goredis.Script
}

var _ membership.Store = (*Store)(nil)

// Options of a store.
type Options struct {
	// URL of the server, with user, password and database: rediss:// with TLS, redis:// without.
	URL   string
	Scope membership.Scope
	// CAFile holds the authorities that may have signed the server's certificate; empty means those of the system.
	CAFile string
	// InsecurePlaintext allows a password over connections without TLS, or to an unverified host.
	InsecurePlaintext bool

	// Opens connections; nil for the network's own function.
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	timeout time.Duration // 0 means callTimeout
}

// Check returns an error that says what is wrong with the options, nil if nothing is. It does not quote the URL. The
// error is a [secure.ErrPlaintext] if a password would reach a host that is neither this machine nor verified.
func (o Options) Check() error {
	_, err := o.client()
	return err
}

// client returns the options of the client: the server and the user of the URL, and our own settings.
func (o Options) client() (*goredis.Options, error) {
	c, err := goredis.ParseURL(strings.TrimSpace(o.URL))
	if err != nil || c.Network != "tcp" {
		return nil, errors.New("the URL of the Redis server cannot be read: rediss://user:password@host:port/database is how it looks, redis:// without TLS")
	}
	if o.CAFile != "" {
		if c.TLSConfig == nil {
			return nil, errors.New("ca_file does not count with redis://: write rediss:// into the URL, or remove ca_file")
		}
		if c.TLSConfig.RootCAs, err = secure.Roots(o.CAFile); err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
	}
	// No retries at any level: the next heartbeat is the retry.
	c.MaxRetries, c.DialerRetries = -1, 1
	timeout := cmp.Or(o.timeout, callTimeout)
	c.DialTimeout, c.ReadTimeout, c.WriteTimeout, c.PoolTimeout = timeout, timeout, timeout, timeout
	c.ContextTimeoutEnabled = true
	c.PoolSize, c.MaxActiveConns, c.MinIdleConns = connections, connections, 0
	c.Protocol, c.DisableIdentity = 2, true
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.Dialer = o.dialer(c.TLSConfig)
	if c.Password == "" || o.InsecurePlaintext || secure.LoopbackAddress(c.Addr) || secure.Verifies(c.TLSConfig) {
		return c, nil
	}
	if c.TLSConfig != nil {
		return nil, fmt.Errorf("%w: the URL lets the password go to %s without looking whose certificate it shows: remove skip_verify from it, and write ca_file if the authority is your own", secure.ErrPlaintext, c.Addr)
	}
	return nil, fmt.Errorf("%w: the URL lets the password go to %s without TLS: write rediss:// instead of redis://, and ca_file if the authority is your own", secure.ErrPlaintext, c.Addr)
}

// Open returns a store. Nothing is connected yet: the error is that of Check.
func Open(options Options) (*Store, error) {
	o, err := options.client()
	if err != nil {
		return nil, err
	}
	scope := options.Scope
	logging.Disable() // the client would log to stderr; the returned errors have the same content
	index := "sluice:members:" + url.QueryEscape(scope.Pipeline) + ":" + url.QueryEscape(scope.Group) + ":"
	return &Store{
		client: goredis.NewClient(o), scope: scope,
		index: []string{index + "seen", index + "expires", index + "status", index + "last"},
		beat:  goredis.NewScript(beatScript), leave: goredis.NewScript(leaveScript),
		members: goredis.NewScript(membersScript), sweep: goredis.NewScript(sweepScript),
	}, nil
}

// dialer returns the function that opens connections within the timeout, with a TLS handshake unless config is nil. The
// connections check replies before go-redis sees them.
func (o Options) dialer(config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := o.dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.timeout, callTimeout))
		defer cancel()
		conn, err := dial(ctx, network, address)
		switch {
		case err != nil:
			return nil, err
		case config == nil:
			return resp.Check(conn), nil
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the error of the handshake is more useful
			return nil, err
		}
		return resp.Check(secured), nil
	}
}

// Close implements [membership.Store].
func (s *Store) Close() error { return s.client.Close() }

// entry is the JSON of a registration.
type entry struct {
	Timestamp     int64             `json:"timestamp"`
	Status        membership.Status `json:"status"`
	LastMessageAt *int64            `json:"last_message_at"`
	ours
}

// ours is the part of a registration that does not depend on the server's clock.
type ours struct {
	Lag      *int64 `json:"consumer_lag"`
	ID       string `json:"id"`
	Pipeline string `json:"pipeline"`
	Group    string `json:"group"`
	TTL      int64  `json:"ttl_ms"`
	Address  string `json:"address,omitempty"`
}

// Beat implements [membership.Store]. It overwrites a value that another program wrote at the registration's key.
func (s *Store) Beat(ctx context.Context, b membership.Beat) (fresh bool, err error) {
	o := ours{ID: b.ID, Pipeline: s.scope.Pipeline, Group: s.scope.Group, TTL: max(b.TTL.Milliseconds(), 1), Address: b.Address}
	if b.Lag >= 0 {
		o.Lag = &b.Lag
	}
	rest, err := json.Marshal(o)
	if err != nil {
		return false, fmt.Errorf("register in Redis: %w", err)
	}
	const head = 128 // room for timestamp, status and last_message_at, which the script puts before it
	if len(rest)+head > membership.MaxRegistration {
		return false, fmt.Errorf("register in Redis: the registration would have more than %d bytes: shorten pipeline, kafka.group or the name of the host", membership.MaxRegistration)
	}
	idle := ""
	if b.Idle >= 0 {
		idle = strconv.FormatInt(b.Idle.Milliseconds(), 10)
	}
	before, err := s.beat.Run(ctx, s.client, append([]string{registration + b.ID}, s.index...),
		b.ID, string(b.Status), idle, o.TTL, string(rest[1:]), max(indexLasts, b.TTL).Milliseconds(), membership.MaxRegistration).Text()
	if err != nil {
		return false, s.failed("register in Redis", err)
	}
	_, err = s.parse(before)
	return err != nil, nil
}

// Leave implements [membership.Store].
func (s *Store) Leave(ctx context.Context, id string) error {
	err := s.leave.Run(ctx, s.client, append([]string{registration + id}, s.index...), id).Err()
	return s.failed("unregister from Redis", err)
}

// Sweep implements [membership.Store].
func (s *Store) Sweep(ctx context.Context, forget time.Duration) (swept int, err error) {
	swept, err = s.sweep.Run(ctx, s.client, s.index, registration, forget.Milliseconds()).Int()
	return swept, s.failed("sweep registrations in Redis", err)
}

// fields is the number of values that the script returns for each member.
const fields = 6

// Members implements [membership.Store].
func (s *Store) Members(ctx context.Context) ([]membership.Member, error) {
	answer, err := s.members.Run(ctx, s.client, s.index, registration, membership.MaxMembers,
		membership.MaxID, membership.MaxRegistration, maxBytes).StringSlice()
	if err != nil {
		return nil, s.failed("list registrations in Redis", err)
	}
	if len(answer)%fields != 1 {
		return nil, fmt.Errorf("list registrations in Redis: %w: the server returned %d values, which is no list of members", membership.ErrUnavailable, len(answer))
	}
	now, err := strconv.ParseInt(answer[0], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("list registrations in Redis: %w: the server's time is %.*q", membership.ErrUnavailable, quoted, answer[0])
	}
	var members []membership.Member
	var foreign error
	for row := range slices.Chunk(answer[1:], fields) {
		m, ok, wrong := s.member(now, row)
		if ok {
			members = append(members, m)
		}
		if foreign == nil {
			foreign = wrong
		}
	}
	slices.SortFunc(members, func(a, b membership.Member) int { return cmp.Compare(a.ID, b.ID) })
	return members, foreign
}

// member parses the script's reply about one member. ok is false if the entry of the member in the index is not one of
// Sluice. wrong is the error about that entry, or about the value at the key of the registration; the latter does not
// make ok false.
func (s *Store) member(now int64, row []string) (m membership.Member, ok bool, wrong error) {
	id, seen, status, last, kind, value := row[0], row[1], row[2], row[3], row[4], row[5]
	at, err := strconv.ParseInt(seen, 10, 64)
	e, parsed := s.parse(last)
	name, from, _ := strings.Cut(status, " ")
	since, unknown := strconv.ParseInt(from, 10, 64)
	if err != nil || parsed != nil || unknown != nil || e.ID != id || name != string(e.Status) {
		return m, false, fmt.Errorf("%w: member %.*q in %s and beside it", membership.ErrForeign, quoted, id, s.index[0])
	}
	m = membership.Member{
		Beat: membership.Beat{ID: id, Status: e.Status, Idle: -1, Lag: -1, TTL: time.Duration(e.TTL) * time.Millisecond},
		Age:  between(at, now), InStatus: between(since, now),
	}
	if e.Lag != nil {
		m.Lag = max(*e.Lag, -1)
	}
	if e.LastMessageAt != nil {
		m.Idle = between(*e.LastMessageAt, now)
	}
	if m.Address = e.Address; m.Address != "" {
		if err := membership.CheckAddress(m.Address); err != nil {
			m.Address, wrong = "", fmt.Errorf("its address cannot be used: %w", err)
		}
	}
	switch kind {
	case "none":
	case "string":
		_, err := s.parse(value)
		m.Registered = err == nil
		wrong = cmp.Or(err, wrong)
	case "large":
		wrong = fmt.Errorf("it has more than %d bytes, or all registrations together have more than %d MiB", membership.MaxRegistration, maxBytes>>20)
	default:
		wrong = errors.New("it is no string")
	}
	if wrong != nil {
		wrong = fmt.Errorf("%w: key %s%.*q: %w", membership.ErrForeign, registration, quoted, id, wrong)
	}
	return m, true, wrong
}

// longest is the longest duration in milliseconds.
const longest = int64(1<<63-1) / int64(time.Millisecond)

// between returns the time from then to now, or 0 if now is earlier: the clock of a server may be set back.
func between(then, now int64) time.Duration {
	return time.Duration(min(max(now-then, 0), longest)) * time.Millisecond
}

// parse reads the JSON of a registration. The error, which does not quote the JSON, means that it is no registration of
// this scope.
func (s *Store) parse(text string) (e entry, err error) {
	if json.Unmarshal([]byte(text), &e) != nil {
		return e, errors.New("it is not the JSON of a registration")
	}
	if e.Pipeline != s.scope.Pipeline || e.Group != s.scope.Group || e.TTL <= 0 || e.TTL > longest ||
		e.Status != membership.Running && e.Status != membership.ShuttingDown {
		return e, errors.New("it is not a registration of this pipeline and group")
	}
	return e, nil
}

// failed classifies an error by the code at the start of the server's text and says what to do. It returns nil for nil.
func (s *Store) failed(what string, err error) error {
	said := ""
	switch code := code(err); {
	case err == nil:
		return nil
	case code == "WRONGTYPE" || strings.Contains(err.Error(), "WRONGTYPE "): // Redis 6 puts the place in the script before the code
		return fmt.Errorf("%s: %w: a key that begins with %s is of another type; look at it, and delete it", what,
			membership.ErrForeign, strings.TrimSuffix(s.index[0], "seen"))
	case code == "NOAUTH" || code == "WRONGPASS" || code == "NOPERM" ||
		strings.Contains(err.Error(), "The user executing the script can't"): // the text of Redis 7 for a NOPERM within a script
		said = "; look at user and password, and at what the user may do"
	case code == "MOVED" || code == "CROSSSLOT" || code == "CLUSTERDOWN":
		said = "; this is Redis Cluster, which cannot be used: name a server that is no part of one"
	case code == "READONLY":
		said = "; this is a replica: name its primary"
	}
	return fmt.Errorf("%s: %w%s: %w", what, membership.ErrUnavailable, said, err)
}

// code returns the first word of the server's error, "" if err does not come from the server.
func code(err error) string {
	answer, ok := errors.AsType[goredis.Error](err)
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(answer.Error(), " ")
	return word
}
