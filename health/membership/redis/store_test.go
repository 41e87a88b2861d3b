package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"

	"sluice/health/membership"
	"sluice/health/membership/membershiptest"
)

var scope = membership.Scope{Pipeline: "p", Group: "g"}

// patient is the timeout of stores in tests, so long that it is not reached on a busy machine.
const patient = time.Minute

func open(t *testing.T, address string, s membership.Scope) *Store {
	t.Helper()
	store, err := Open(Options{URL: address, Scope: s, timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// server is an in-process Redis with a clock that the test sets.
type server struct {
	*miniredis.Miniredis
	mu  sync.Mutex
	now time.Time
}

func start(t *testing.T) *server {
	s := &server{Miniredis: miniredis.RunT(t), now: time.UnixMilli(1_763_764_000_123)}
	s.SetTime(s.now)
	return s
}

func (s *server) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
	s.SetTime(s.now)
	s.FastForward(d)
}

// put sets a key to a string, as another program would.
func (s *server) put(key, value string) {
	if err := s.Set(key, value); err != nil {
		panic(err)
	}
}

func (s *server) url() string { return "redis://" + s.Addr() }

func TestStore(t *testing.T) {
	membershiptest.Run(t, func(t *testing.T, _ string) membershiptest.Server {
		s := start(t)
		return membershiptest.Server{
			Open: func(t *testing.T, scope membership.Scope) membership.Store { return open(t, s.url(), scope) },
			Pass: s.pass, Unit: 10 * time.Second,
			Lose: func(_ *testing.T, _ membership.Scope, id string) { s.Del("worker:connector:" + id) },
		}
	})
}

// TestRegistrationIsPublic: a registration has the key and the JSON that other programs rely on.
func TestRegistrationIsPublic(t *testing.T) {
	s := start(t)
	store := open(t, s.url(), scope)
	defer store.Close()
	b := membership.Beat{ID: "host-7-0badcafe", Status: membership.Running, Idle: 1500 * time.Millisecond, Lag: 42, TTL: 30 * time.Second}
	if _, err := store.Beat(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	value, err := s.Get("worker:connector:host-7-0badcafe")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"timestamp":1763764000123,"status":"RUNNING","last_message_at":1763763998623,"consumer_lag":42,` +
		`"id":"host-7-0badcafe","pipeline":"p","group":"g","ttl_ms":30000}`
	if value != want || !json.Valid([]byte(value)) {
		t.Errorf("got  %s\nwant %s", value, want)
	}
	if ttl := s.TTL("worker:connector:host-7-0badcafe"); ttl != 30*time.Second {
		t.Errorf("ttl %s", ttl)
	}
	b.Address = "http://10.1.2.3:8080"
	if _, err := store.Beat(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if value, _ = s.Get("worker:connector:host-7-0badcafe"); value != strings.TrimSuffix(want, "}")+`,"address":"http://10.1.2.3:8080"}` {
		t.Errorf("with an address: %s", value)
	}
	b.Status, b.Idle, b.Lag, b.TTL = membership.ShuttingDown, -1, -1, time.Minute
	if _, err := store.Beat(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	value, _ = s.Get("worker:connector:host-7-0badcafe")
	if !strings.HasPrefix(value, `{"timestamp":1763764000123,"status":"SHUTTING_DOWN","last_message_at":null,"consumer_lag":null,`) {
		t.Errorf("got %s", value)
	}
	if ttl := s.TTL("worker:connector:host-7-0badcafe"); ttl != time.Minute {
		t.Errorf("ttl %s", ttl)
	}
	for _, key := range s.Keys() {
		if s.TTL(key) <= 0 {
			t.Errorf("key %s stays for ever", key)
		}
	}
}

// TestForeign: values of other programs at the keys of registrations are reported. The other members can still be
// listed, and the member's next heartbeat replaces the value.
func TestForeign(t *testing.T) {
	entry := func(change string, to string) string {
		return strings.Replace(`{"timestamp":1763764000123,"status":"RUNNING","last_message_at":null,"consumer_lag":null,"id":"a","pipeline":"p","group":"g","ttl_ms":30000}`, change, to, 1)
	}
	key, index := "worker:connector:a", "sluice:members:p:g:"
	for name, c := range map[string]struct {
		write func(*server)
		stays bool // true if member a is listed nevertheless
	}{
		"text":          {func(s *server) { s.put(key, "RUNNING\r\n") }, true},
		"empty":         {func(s *server) { s.put(key, "") }, true},
		"array":         {func(s *server) { s.put(key, "[1]") }, true},
		"null":          {func(s *server) { s.put(key, "null") }, true},
		"other JSON":    {func(s *server) { s.put(key, `{"timestamp":1}`) }, true},
		"other group":   {func(s *server) { s.put(key, entry(`"g"`, `"h"`)) }, true},
		"other status":  {func(s *server) { s.put(key, entry("RUNNING", "UP")) }, true},
		"no ttl":        {func(s *server) { s.put(key, entry("30000", "0")) }, true},
		"large ttl":     {func(s *server) { s.put(key, entry("30000", "9223372036854775807")) }, true},
		"no text":       {func(s *server) { s.HSet(index+"last", "a", entry(`30000`, `30000,"address":7`)) }, false},
		"list":          {func(s *server) { s.Del(key); _, _ = s.Push(key, "x") }, true},
		"hash":          {func(s *server) { s.Del(key); s.HSet(key, "f", "x") }, true},
		"large":         {func(s *server) { s.put(key, strings.Repeat(" ", 5000)+entry("", "")) }, true},
		"large status":  {func(s *server) { s.HSet(index+"status", "a", "RUNNING "+strings.Repeat("0", 5000)+"1") }, false},
		"large last":    {func(s *server) { s.HSet(index+"last", "a", strings.Repeat(" ", 5000)+entry("", "")) }, false},
		"status":        {func(s *server) { s.HSet(index+"status", "a", "RUNNING") }, false},
		"status time":   {func(s *server) { s.HSet(index+"status", "a", "RUNNING soon") }, false},
		"other":         {func(s *server) { s.HSet(index+"status", "a", "SHUTTING_DOWN 1") }, false},
		"no status":     {func(s *server) { s.HDel(index+"status", "a") }, false},
		"last":          {func(s *server) { s.HSet(index+"last", "a", "{}") }, false},
		"last of other": {func(s *server) { s.HSet(index+"last", "a", entry(`"a"`, `"b"`)) }, false},
		"seen":          {func(s *server) { _, _ = s.ZAdd(index+"seen", 1e300, "a") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			store := open(t, s.url(), scope)
			defer store.Close()
			for _, id := range []string{"a", "b"} {
				if _, err := store.Beat(t.Context(), membership.Beat{ID: id, Status: membership.Running, Lag: -1, Idle: -1, TTL: time.Minute}); err != nil {
					t.Fatal(err)
				}
			}
			c.write(s)
			members, err := store.Members(t.Context())
			if !errors.Is(err, membership.ErrForeign) || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("error %v", err)
			}
			registered := map[string]bool{}
			for _, m := range members {
				registered[m.ID] = m.Registered
			}
			want := map[string]bool{"b": true}
			if c.stays {
				want["a"] = false
			}
			if diff := cmp.Diff(want, registered); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
			if _, err := store.Sweep(t.Context(), time.Hour); err != nil {
				t.Errorf("sweep: %v", err)
			}
			if fresh, err := store.Beat(t.Context(), membership.Beat{ID: "a", Status: membership.Running, Lag: -1, Idle: -1, TTL: time.Minute}); err != nil || fresh != c.stays {
				t.Errorf("beat: fresh %v, %v", fresh, err)
			}
			if members, err := store.Members(t.Context()); err != nil || len(members) != 2 {
				t.Errorf("afterwards %d members, %v", len(members), err)
			}
		})
	}

	for _, part := range []string{"seen", "expires", "status", "last"} {
		s := start(t)
		store := open(t, s.url(), scope)
		s.put(index+part, "x")
		_, beatErr := store.Beat(t.Context(), membership.Beat{ID: "a", Status: membership.Running, TTL: time.Minute})
		if !errors.Is(beatErr, membership.ErrForeign) || !strings.Contains(beatErr.Error(), index) {
			t.Errorf("%s of another type: %v", part, beatErr)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBounds: if values of other programs are too large, the store does not read them. It lists the members beside them
// and returns an error.
func TestBounds(t *testing.T) {
	s := start(t)
	store := open(t, s.url(), scope)
	defer store.Close()
	beat := func(id string) (fresh bool) {
		t.Helper()
		fresh, err := store.Beat(t.Context(), membership.Beat{ID: id, Status: membership.Running, Lag: -1, Idle: -1, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return fresh
	}
	list := func() (listed, registered int, err error) {
		t.Helper()
		all, err := store.Members(t.Context())
		for _, m := range all {
			if m.Registered {
				registered++
			}
		}
		return len(all), registered, err
	}
	const members = 2100 // together these members may have more than maxBytes
	for i := range members {
		beat(fmt.Sprint("m", i))
	}
	if listed, registered, err := list(); err != nil || listed != members || registered != members {
		t.Fatalf("%d members, %d registered, %v", listed, registered, err)
	}

	s.put("worker:connector:m0", strings.Repeat("x", 30<<20))
	if listed, registered, err := list(); !errors.Is(err, membership.ErrForeign) || listed != members || registered != members-1 {
		t.Errorf("a registration of 30 MiB: %d members, %d registered, %v", listed, registered, err)
	}
	if !beat("m0") {
		t.Error("a registration of 30 MiB counts as one")
	}
	_, _ = s.ZAdd("sluice:members:p:g:seen", 1e15, strings.Repeat("i", 100<<10))
	if listed, registered, err := list(); !errors.Is(err, membership.ErrForeign) || len(err.Error()) > 500 || listed != members || registered != members {
		t.Errorf("an id of 100 KiB: %d members, %d registered, %.600v", listed, registered, err)
	}
	// Each of these registrations is within its bound, but all together are too large for one reply: some members are
	// listed, and Members returns an error.
	for i := range members {
		s.put(fmt.Sprint("worker:connector:m", i), strings.Repeat("x", membership.MaxRegistration))
	}
	if listed, registered, err := list(); !errors.Is(err, membership.ErrForeign) || listed == 0 || listed == members || registered != 0 {
		t.Errorf("9 MiB: %d members, %d registered, %v", listed, registered, err)
	}
}

// TestBeat_TooLarge: a member does not write a registration that is too large for other members to read.
func TestBeat_TooLarge(t *testing.T) {
	s := start(t)
	for n, want := range map[int]bool{3500: true, 5000: false} {
		store := open(t, s.url(), membership.Scope{Pipeline: "p", Group: strings.Repeat("g", n)})
		_, err := store.Beat(t.Context(), membership.Beat{ID: "a", Status: membership.Running, TTL: time.Minute})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "shorten pipeline") {
			t.Errorf("%d bytes: %v", n, err)
		}
		if members, err := store.Members(t.Context()); err != nil || (len(members) == 1) != want {
			t.Errorf("%d bytes: %d members, %v", n, len(members), err)
		}
		_ = store.Close()
	}
}

// TestClockSetBack: no duration is negative after the server's clock was set back.
func TestClockSetBack(t *testing.T) {
	s := start(t)
	store := open(t, s.url(), scope)
	defer store.Close()
	b := membership.Beat{ID: "a", Status: membership.Running, TTL: time.Minute}
	if _, err := store.Beat(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	s.SetTime(s.now.Add(-time.Hour))
	members, err := store.Members(t.Context())
	if err != nil || len(members) != 1 || members[0].Age != 0 || members[0].Idle != 0 || members[0].InStatus != 0 || !members[0].Active() {
		t.Errorf("got %+v, %v", members, err)
	}
}

// TestUnavailable: a call to a server that refuses, has ended or does not answer returns an error before its deadline.
func TestUnavailable(t *testing.T) {
	secret := start(t)
	secret.RequireAuth("hunter2")
	refused := open(t, "redis://:wrong-secret@"+secret.Addr(), scope)
	defer refused.Close()
	_, err := refused.Members(t.Context())
	if !errors.Is(err, membership.ErrUnavailable) || !strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), "wrong-secret") {
		t.Errorf("wrong password: %v", err)
	}
	allowed := open(t, "redis://:hunter2@"+secret.Addr(), scope)
	defer allowed.Close()
	if _, err := allowed.Members(t.Context()); err != nil {
		t.Errorf("right password: %v", err)
	}
	secret.Close()
	if _, err := allowed.Members(t.Context()); !errors.Is(err, membership.ErrUnavailable) {
		t.Errorf("server gone: %v", err)
	}
	cluster := start(t)
	moved := open(t, cluster.url(), scope)
	defer moved.Close()
	for answer, want := range map[string]string{
		"MOVED 3999 127.0.0.1:6381": "Redis Cluster", "CROSSSLOT Keys in request": "Redis Cluster", "READONLY You can't write": "primary", "NOPERM this user": "may do",
		"LOADING Redis is loading": "LOADING", "ERR Error running script (call to f_1): @user_script:3: WRONGTYPE Operation": "sluice:members:p:g:",
	} {
		cluster.SetError(answer)
		if _, err := moved.Members(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", answer, err)
		}
	}

	page := httptest.NewTLSServer(nil)
	defer page.Close()
	encrypted, err := miniredis.RunTLS(page.TLS)
	if err != nil {
		t.Fatal(err)
	}
	defer encrypted.Close()
	unknown := open(t, "rediss://"+encrypted.Addr(), scope)
	defer unknown.Close()
	if _, err := unknown.Members(t.Context()); !errors.Is(err, membership.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody knows: %v", err)
	}

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	hung := open(t, "redis://"+silent.Addr().String(), scope)
	defer hung.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := hung.Members(ctx); !errors.Is(err, membership.ErrUnavailable) {
		t.Errorf("no answer: %v", err)
	}
}

func TestURL(t *testing.T) {
	for _, bad := range []string{"", "localhost:6379", "http://h", "redis://h:port", "redis://:s3cret%zz@h", "redis://h/x", "redis://h?color=s3cret", "unix:///run/redis.sock"} {
		if _, err := Open(Options{URL: bad, Scope: scope}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	s, err := Open(Options{URL: " rediss://u:p@h:6380/3?max_retries=9&read_timeout=1h \n", Scope: scope})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o := s.client.Options()
	if o.TLSConfig == nil || o.TLSConfig.InsecureSkipVerify || o.Addr != "h:6380" || o.DB != 3 || o.MaxRetries > 0 || o.ReadTimeout != callTimeout {
		t.Errorf("options %+v", o)
	}
}

// FuzzMember: for any content of the server, the result is an error or a member with plausible durations.
func FuzzMember(f *testing.F) {
	good := `{"timestamp":1,"status":"RUNNING","last_message_at":1,"consumer_lag":3,"id":"a","pipeline":"p","group":"g","ttl_ms":30000}`
	f.Add("a", "1", "RUNNING 1", good, "string", good)
	f.Add("a", "-1", "RUNNING -9223372036854775808", good, "other", "")
	f.Add("a", "inf", "RUNNING", "[]", "none", "\xff")
	s, err := Open(Options{URL: "redis://127.0.0.1:1", Scope: scope})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, seen, status, last, kind, value string) {
		m, ok, wrong := s.member(1_763_764_000_123, []string{id, seen, status, last, kind, value})
		if !ok && wrong == nil {
			t.Error("neither a member nor an error")
		}
		if wrong != nil && (!errors.Is(wrong, membership.ErrForeign) || strings.ContainsAny(wrong.Error(), "\n\x1b")) {
			t.Errorf("error %q", wrong)
		}
		if ok && (m.ID != id || m.Age < 0 || m.InStatus < 0 || m.TTL <= 0 || m.Lag < -1) {
			t.Errorf("member %+v", m)
		}
		if _, err := strconv.ParseInt(seen, 10, 64); ok && err != nil {
			t.Error("a member without a time")
		}
	})
}
