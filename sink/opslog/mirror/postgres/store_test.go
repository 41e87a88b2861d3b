package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"sluice/secure"
	"sluice/sink/opslog"
)

const hidden = "hunter2"

// TestOpen_BadURLs: no error quotes the URL, and a password needs TLS with a verified host.
func TestOpen_BadURLs(t *testing.T) {
	for url, plaintext := range map[string]bool{
		"postgres://u:" + hidden + "@h:port/db": false, "host=" + hidden + " port": false,
		"postgres://u:" + hidden + "@h/db": true, "postgres://u:" + hidden + "@h/db?sslmode=require": true,
	} {
		_, err := Open(t.Context(), Options{URL: url, Pipeline: "p"})
		if err == nil || strings.Contains(err.Error(), hidden) || errors.Is(err, secure.ErrPlaintext) != plaintext {
			t.Errorf("%v", err)
		}
	}
	s, err := Open(t.Context(), Options{URL: "postgres://u:" + hidden + "@h/db", Pipeline: "p", InsecurePlaintext: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestUnavailable: without a server, a call fails, ends with its context, and has no password in its error.
func TestUnavailable(t *testing.T) {
	s, err := Open(t.Context(), Options{URL: "postgres://u:" + hidden + "@127.0.0.1:1/db?sslmode=disable", Pipeline: "p"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Newest(t.Context(), 1); err == nil || strings.Contains(err.Error(), hidden) || !strings.Contains(err.Error(), "read the newest copy") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Add(ctx, opslog.Head{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestTexts: what Postgres cannot hold is replaced, and JSON keeps its value.
func TestTexts(t *testing.T) {
	if got := plain("a\x00b\xffc日"); got != "a\uFFFDb\uFFFDc日" {
		t.Errorf("%q", got)
	}
	if got := ascii("a\x00\"ü\""); got != `a\ufffd\"\u00fc\"` {
		t.Errorf("%q", got)
	}
	for _, text := range []string{"plain", "größe 日本 🦀", "\x00\x1f\u2028", "a\"b\\c", string(utf16.Decode([]uint16{0xd83e, 0xdd80}))} {
		body, err := json.Marshal(map[string]string{"k": text})
		if err != nil {
			t.Fatal(err)
		}
		got := asciiJSON(body)
		for i := range len(got) {
			if got[i] >= 0x80 {
				t.Fatalf("%q is not ASCII", got)
			}
		}
		var back map[string]string
		if err := json.Unmarshal([]byte(got), &back); err != nil || back["k"] != text {
			t.Errorf("%q became %q, %v", text, back["k"], err)
		}
	}
}
