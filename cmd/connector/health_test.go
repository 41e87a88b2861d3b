package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// listens makes a lake's configuration one that answers probes at a free port.
func (l *lake) listens() {
	l.t.Helper()
	text := strings.ReplaceAll(read(l.t, l.config), "health: {enabled: false}", `health: {listen: "127.0.0.1:0"}`)
	if err := os.WriteFile(l.config, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// listening starts a member with something to tell and returns the address that it answers at.
func listening(t *testing.T) string {
	t.Helper()
	l := newLake(t, "topics: {orders: {}}")
	l.listens()
	logger, out := newLogged(t)
	l.logger = logger
	l.create("orders", 2)
	l.produce("orders", 3, 0, 1)
	l.start()
	l.awaits("orders", upTo(3, "orders-0", "orders-1"))
	base := address(t, out)
	l.await("the member is ready", func() bool {
		code, _ := ask(t, http.MethodGet, base+"/health/ready")
		return code == 200
	})
	return base
}

// address is where a system answers probes, by its log.
func address(t *testing.T, out *logged) string {
	t.Helper()
	address, ok := out.lines(t, "health")[0]["address"].(string)
	if !ok {
		t.Fatal("no line says where probes are answered")
	}
	return "http://" + address
}

// ask asks an address.
func ask(t *testing.T, method, url string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// curl asks a member as a command in the docs does.
func curl(t *testing.T, args []string, member string) {
	t.Helper()
	url, ok := strings.CutPrefix(strings.Trim(args[len(args)-1], "'"), "http://localhost:8080/")
	if !ok || !slices.Equal(args[:len(args)-1], []string{"-s"}) {
		t.Fatalf("curl %v is not understood here", args)
	}
	code, body := ask(t, http.MethodGet, member+"/"+url)
	if code != 200 || body == "" || strings.HasPrefix(body, "{") && !json.Valid([]byte(body)) {
		t.Errorf("%s: %d %s", url, code, body)
	}
}
