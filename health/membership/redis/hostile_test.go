package redis

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/classify"
	"sluice/health/membership"
	"sluice/health/membership/membershiptest"
	"sluice/test/certs"
)

// liar is a server that responds to one command with answer. To all other commands it responds like a Redis server that
// is older than version 6 and has no scripts.
type liar struct {
	command string
	answer  func(w io.Writer)
	heard   chan<- string // receives the words of all commands, if it is not nil and not full
}

// listen serves until the test ends, and returns the address.
func (l liar) listen(t *testing.T, config *tls.Config) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait() // returns once clients have closed their connections
	})
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if config != nil {
				conn = tls.Server(conn, config)
			}
			all.Go(func() { l.serve(conn) })
		}
	})
	return listener.Addr().String()
}

func (l liar) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for {
		words, err := command(r)
		if err != nil || len(words) == 0 {
			return
		}
		for _, word := range words {
			select {
			case l.heard <- word:
			default: // heard is nil, or full
			}
		}
		switch strings.ToUpper(words[0]) {
		case l.command: // if l.command is "", no command matches
			l.answer(conn)
		case "HELLO":
			_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
		case "EVALSHA":
			_, _ = io.WriteString(conn, "-NOSCRIPT No matching script\r\n")
		default:
			_, _ = io.WriteString(conn, "+OK\r\n")
		}
	}
}

// command reads one command of a client and returns its name and arguments.
func command(r *bufio.Reader) (words []string, err error) {
	n, err := number(r, "*")
	for i := 0; i < n && err == nil; i++ {
		var size int
		if size, err = number(r, "$"); err == nil {
			word := make([]byte, size+2)
			_, err = io.ReadFull(r, word)
			words = append(words, string(word[:size]))
		}
	}
	return words, err
}

// number reads a line that begins with kind, followed by a number, and returns the number.
func number(r *bufio.Reader, kind string) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), kind))
}

// says returns an answer that is text.
func says(text string) func(io.Writer) {
	return func(w io.Writer) { _, _ = io.WriteString(w, text) }
}

// again returns an answer that is text, followed by n copies of more.
func again(text, more string, n int) func(io.Writer) {
	return func(w io.Writer) {
		b := bufio.NewWriter(w)
		_, err := b.WriteString(text)
		for i := 0; i < n && err == nil; i++ {
			_, err = b.WriteString(more)
		}
		_ = b.Flush()
	}
}

// endless returns an answer that is text, followed by this many more bytes. It stops earlier if the connection is
// closed.
func endless(text string, bytes int64) func(io.Writer) {
	return func(w io.Writer) {
		_, _ = io.WriteString(w, text)
		_, _ = io.CopyN(w, letters{}, bytes)
	}
}

// letters is a reader of endless text.
type letters struct{}

func (letters) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), 4096)), nil }

// TestHostileReplies: for each hostile reply to any command, the client returns an error that says what is wrong. It
// allocates no more than the bound of a reply.
func TestHostileReplies(t *testing.T) {
	const (
		huge = 600 << 20
		long = 64 << 20 // the test must survive a client without the bound, which reads all of it
	)
	replies := map[string]struct {
		answer func(io.Writer)
		want   string // a part of the error's text
	}{
		"length":              {says("$9223372036854775800\r\n"), "reply too large: a bulk string of more than 65536 bytes from 127.0.0.1:"},
		"length of an error":  {says("!9223372036854775800\r\n"), "a bulk string of more"},
		"length in a list":    {says("*2\r\n$1\r\na\r\n$9223372036854775800\r\n"), "a bulk string of more"},
		"count":               {says("*2147483647\r\n"), "an array of more than 65536 elements"},
		"negative count":      {says("*-5\r\n"), "malformed reply: '5' in the length of an array"},
		"depth":               {again("", "*1\r\n", 100_000), "nested more than 8 deep"},
		"600 MiB":             {endless(fmt.Sprintf("$%d\r\n", huge), huge), "a bulk string of more"},
		"endless line":        {endless("+", long), "a line of more than 4096 bytes"},
		"endless error":       {endless("-ERR ", long), "a line of more than 4096 bytes"},
		"many values":         {again("*60000\r\n", "+"+strings.Repeat("x", 1000)+"\r\n", 60_000), "more than 16 MiB"},
		"map":                 {says("%2147483647\r\n"), "a map of more than 65536 elements"},
		"maps":                {again("", "%65536\r\n", 8), "more than 16 MiB"},
		"attribute":           {says("|2147483647\r\n"), "an attribute of more"},
		"chain of attributes": {again("", "|0\r\n", 1_000_000), "an attribute within another"},
		"streamed":            {says("$?\r\n;4\r\nabcd\r\n;0\r\n"), "a bulk string without a length"},
		"another protocol":    {says("HTTP/1.1 400 Bad Request\r\n\r\n"), "'H' where a value begins"},
		"half, then silence":  {says("*3\r\n$4\r\nab"), ""},
	}
	ca := certs.NewCA(t, "test")
	file, config := ca.File(t), ca.Server(t, "127.0.0.1")
	for name, reply := range replies {
		for _, command := range []string{"HELLO", "AUTH", "SELECT", "EVALSHA", "EVAL"} {
			for scheme, config := range map[string]*tls.Config{"redis": nil, "rediss": config} {
				t.Run(name+"/"+command+"/"+scheme, func(t *testing.T) {
					address := liar{command: command, answer: reply.answer}.listen(t, config)
					o := Options{URL: scheme + "://u:p@" + address + "/1", Scope: scope}
					if config != nil {
						o.CAFile = file
					}
					refuses(t, o, reply.want)
				})
			}
		}
	}
}

// refuses lists the members in a server, and expects an error that contains want.
func refuses(t *testing.T, o Options, want string) {
	t.Helper()
	o.timeout = patient
	store, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	if want == "" { // with want "", the server does not respond
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	}
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = store.Members(ctx)
	runtime.ReadMemStats(&after)
	const otherKind = "can't parse reply=" // go-redis itself stops at the first line of a type that it does not expect
	if !errors.Is(err, membership.ErrUnavailable) || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), otherKind) || len(err.Error()) > 1000 {
		t.Errorf("error %.1000v, want %q", err, want)
	}
	if err != nil && want != "" && classify.Of(err) != classify.Transient {
		t.Errorf("%v is %v", err, classify.Of(err))
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
		t.Errorf("%d MiB allocated", allocated>>20)
	}
}

// TestNoList: a well-formed reply that is not a list of members is an error.
func TestNoList(t *testing.T) {
	for _, text := range []string{"*0\r\n", "*1\r\n*0\r\n", "*3\r\n$1\r\n7\r\n$1\r\na\r\n$1\r\n7\r\n", "*1\r\n+noon\r\n", "*-1\r\n", "$-1\r\n", ":7\r\n", "*1\r\n$-1\r\n"} {
		address := liar{command: "EVALSHA", answer: says(text)}.listen(t, nil)
		refuses(t, Options{URL: "redis://" + address, Scope: scope}, "list registrations in Redis")
	}
}

// TestStoreTLS: the store works over TLS as it does without.
func TestStoreTLS(t *testing.T) {
	ca := certs.NewCA(t, "test")
	file, config := ca.File(t), ca.Server(t, "127.0.0.1")
	membershiptest.Run(t, func(t *testing.T, _ string) membershiptest.Server {
		secured, err := miniredis.RunTLS(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(secured.Close)
		s := &server{Miniredis: secured, now: time.UnixMilli(1_763_764_000_123)}
		s.SetTime(s.now)
		return membershiptest.Server{
			Open: func(t *testing.T, scope membership.Scope) membership.Store {
				store, err := Open(Options{URL: "rediss://" + s.Addr(), Scope: scope, CAFile: file, timeout: patient})
				if err != nil {
					t.Fatal(err)
				}
				return store
			},
			Pass: s.pass, Unit: 10 * time.Second,
			Lose: func(_ *testing.T, _ membership.Scope, id string) { s.Del("worker:connector:" + id) },
		}
	})
}
