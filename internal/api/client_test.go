package api

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/fail"
)

// newTestClient returns a client with the token of a name, which does not wait between attempts.
func newTestClient(t *testing.T, server, token, caFile string) *Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(ClientOptions{Server: server, TokenFile: file, CAFile: caFile, Within: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c.wait = 0
	return c
}

// TestClient_RepeatsUnknown: the client sends a change again, with the same key, while its outcome is unknown, and says
// so if it stays unknown. It repeats no request that was answered, and none that did not reach the server.
func TestClient_RepeatsUnknown(t *testing.T) {
	var mu sync.Mutex // guards keys and answers
	var keys []string
	var answers []http.HandlerFunc
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		next := answers[len(keys)-1]
		mu.Unlock()
		if next != nil {
			next(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"changed": true}`))
	}))
	defer server.Close()
	c := newTestClient(t, server.URL, secretOf("operator"), "")
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	unknown := func(w http.ResponseWriter, _ *http.Request) { writeProblem(w, newProblem(codeUnknown, "who knows")) }
	for _, test := range []struct {
		name    string
		answers []http.HandlerFunc
		key     string
		sent    int
		want    string // of the error; "" for none
	}{
		{"connection cut", []http.HandlerFunc{cut, nil}, "k", 2, ""},
		{"outcome unknown", []http.HandlerFunc{unknown, unknown, nil}, "k", 3, ""},
		{"never known", []http.HandlerFunc{unknown, cut, unknown}, "k", maxAttempts, "look for it in connector audit list"},
		{"without a key", []http.HandlerFunc{cut}, "", 1, "does not respond"},
		{"refused", []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { writeProblem(w, newProblem(codeRefused, "no")) }}, "k", 1, ": refused: no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			mu.Lock()
			keys, answers = nil, test.answers
			mu.Unlock()
			d, err := c.DecideTargets(t.Context(), "pause", nil, Change{Reason: "why", Key: test.key})
			mu.Lock()
			defer mu.Unlock()
			if len(keys) != test.sent || strings.Join(keys, "") != strings.Repeat(test.key, test.sent) {
				t.Errorf("keys %q, want %d times %q", keys, test.sent, test.key)
			}
			if test.want == "" && (err != nil || !d.Changed) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%+v %v, want %q", d, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("the error has the token: %v", err)
			}
		})
	}
	server.Close()
	_, err := c.DecideTargets(t.Context(), "pause", nil, Change{Reason: "why", Key: "k"})
	if fail.Of(err) != fail.KindDependency || strings.Contains(err.Error(), "audit list") || strings.Contains(err.Error(), canary) {
		t.Errorf("without a server: %v", err)
	}
}

// TestClient_Problems: the error of a problem has its code and its detail, and the kind by which a command ends.
func TestClient_Problems(t *testing.T) {
	want := map[code]fail.Kind{ //nolint:exhaustive // all other codes are errors of usage
		codeFound: fail.KindFound, codeNotFound: fail.KindFound,
		codeRefused: fail.KindRefused, codeAmbiguous: fail.KindRefused, codeKeyReused: fail.KindRefused,
		codeRate: fail.KindDependency, codeLogins: fail.KindDependency, codeBusy: fail.KindDependency, codeDependency: fail.KindDependency,
		codeUnknown: fail.KindDependency, codeTimeout: fail.KindDependency, codeInternal: fail.KindDependency,
	}
	for c := range statuses() {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeProblem(w, newProblem(c, "do this")) }))
		_, err := newTestClient(t, server.URL, "token", "").LogLevel(t.Context())
		server.Close()
		kind, listed := want[c]
		if !listed {
			kind = fail.KindUsage
		}
		if err == nil || fail.Of(err) != kind || err.Error() != fmt.Sprintf("%s: %s: do this", server.URL, c) {
			t.Errorf("%s: %v (%v), want %v", c, err, fail.Of(err), kind)
		}
	}
}

// TestClient_OnlyTheMember: the token goes to the named member and nowhere else: not to where it redirects, not without
// TLS to another machine, and not to a server with a wrong certificate.
func TestClient_OnlyTheMember(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the stranger got a request with %q", r.Header.Get("Authorization"))
	}))
	defer stranger.Close()
	redirects := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token" {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, stranger.URL, http.StatusTemporaryRedirect)
	})
	server := httptest.NewServer(redirects)
	defer server.Close()
	_, err := newTestClient(t, server.URL, "token", "").LogLevel(t.Context())
	if fail.Of(err) != fail.KindDependency || !strings.Contains(err.Error(), "307 Temporary Redirect, and not by an ops API") {
		t.Errorf("redirect: %v", err)
	}
	secured := httptest.NewTLSServer(redirects)
	defer secured.Close()
	if _, err := newTestClient(t, secured.URL, "token", "").LogLevel(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("unknown authority: %v", err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secured.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newTestClient(t, secured.URL, "token", ca).LogLevel(t.Context()); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("known authority: %v", err)
	}
}

// TestNewClient_Refuses lists what a client does not accept.
func TestNewClient_Refuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", canary+"\n")
	for _, test := range []struct{ server, token, ca, want string }{
		{"", "", "", "not the URL of a member"},
		{"127.0.0.1:8090", "", "", "not the URL of a member"},
		{"ftp://127.0.0.1", "", "", "not the URL of a member"},
		{"http://ada:" + canary + "@127.0.0.1:8090", "", "", "no user and no password"},
		{"http://127.0.0.1:8090/internal/v1", "", "", "ends with its host and port"},
		{"http://127.0.0.1:8090?x=1", "", "", "ends with its host and port"},
		{"http://ops.example.com:8090", good, "", "is another machine, and others could read the token on its way: use https"},
		{"http://127.0.0.1:8090", filepath.Join(dir, "missing"), "", "no such file"},
		{"http://127.0.0.1:8090", file("empty", "\n"), "", "has to contain one token"},
		{"http://127.0.0.1:8090", file("two", canary+" "+canary), "", "has to contain one token"},
		{"http://127.0.0.1:8090", file("long", strings.Repeat("x", tokenBytes)), "", "has to contain one token"},
		{"http://127.0.0.1:8090", file("odd", canary+"é"), "", "has to contain one token"},
		{"https://ops.example.com:8090", good, file("ca", "no certificate"), "CA certificates"},
	} {
		_, err := NewClient(ClientOptions{Server: test.server, TokenFile: test.token, CAFile: test.ca})
		if fail.Of(err) != fail.KindUsage || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	for _, server := range []string{"http://127.0.0.1:8090/", "http://[::1]:8090", "http://localhost:8090", "https://ops.example.com"} {
		if _, err := NewClient(ClientOptions{Server: server, TokenFile: good}); err != nil {
			t.Errorf("%s: %v", server, err)
		}
	}
	if c, err := NewClient(ClientOptions{Server: "http://ops.example.com:8090"}); err != nil || c.token != "" {
		t.Errorf("without a token: %v", err)
	}
}

// TestClient_Pages: the client reads all pages of a list, and the responses of the server fit its types.
func TestClient_Pages(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}, users: {}}", withTokens)
	address := "http://" + w.serve()
	c := newTestClient(t, address, secretOf("operator"), "")
	for i := range 5 {
		action := []string{"pause", "resume"}[i%2]
		if d, err := c.DecideTargets(t.Context(), action, []string{"orders"}, Change{Reason: "why", Key: fmt.Sprint("key", i)}); err != nil || !d.Changed || d.Entry == nil {
			t.Fatalf("%+v %v", d, err)
		}
	}
	pages := 0
	var seqs []int64
	err := each(t.Context(), c, "audit", parameters("limit", "2"), func(p *auditPage) string { return p.Next }, func(p *auditPage) bool {
		pages++
		for _, e := range p.Entries {
			seqs = append(seqs, e.Seq)
		}
		return true
	})
	if err != nil || pages != 3 || fmt.Sprint(seqs) != "[1 2 3 4 5]" {
		t.Errorf("%d pages with %v: %v", pages, seqs, err)
	}
	r, err := c.Audit(t.Context(), time.Time{})
	entries := w.entries()
	if err != nil || len(r.Entries) != 5 || r.Head == nil || *r.Head != entries[4].Head() {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := c.Audit(t.Context(), time.Now().Add(time.Hour)); err != nil || len(r.Entries) != 0 || *r.Head != entries[4].Head() {
		t.Errorf("later: %+v %v", r, err)
	}
	values, err := c.Config(t.Context())
	if err != nil || len(values) < 90 || values[0].Key == "" {
		t.Errorf("%d values: %v", len(values), err)
	}
	_, err = c.Members(t.Context())
	if fail.Of(err) != fail.KindUsage || !strings.Contains(err.Error(), "not_configured: members do not register") {
		t.Errorf("members: %v", err)
	}
}

// TestClient_Silent: a server that does not answer within the time limit is a dependency that could not be used.
func TestClient_Silent(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	c := newTestClient(t, "http://"+silent.Addr().String(), "token", "")
	c.within = time.Millisecond
	if _, err := c.LogLevel(t.Context()); fail.Of(err) != fail.KindDependency {
		t.Errorf("%v", err)
	}
}
