package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"sluice/health"
	"sluice/internal/laketest"
)

// parrot returns the address of a server that responds to each read with text, or never if text is empty.
func parrot(t *testing.T, text string) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				piece := make([]byte, 4096)
				for err == nil {
					if _, err = conn.Read(piece); err == nil {
						_, err = io.WriteString(conn, text)
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestMembers_HostileStore has a store of registrations that never responds, or responds nonsense. Records must become
// rows all the same, and the member must be ready and report that the other members are unknown.
func TestMembers_HostileStore(t *testing.T) {
	const redis, postgres = "redis://%s/0", "postgres://u:p@%s/db?sslmode=disable"
	for name, tt := range map[string]struct{ url, text, why string }{
		"redis":            {redis, "", ""},
		"postgres":         {postgres, "", ""},
		"redis, length":    {redis, "$9223372036854775800\r\n", "reply too large: a bulk string of more than 65536 bytes"},
		"redis, count":     {redis, "*2147483647\r\n", "reply too large: an array"},
		"postgres, length": {postgres, "R\x7f\xff\xff\xff", "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, store := write(t, fmt.Sprintf(tt.url, parrot(t, tt.text))), strings.SplitN(tt.url, ":", 2)[0]
			l := newLake(t, fmt.Sprintf("topics: {orders: {}}\nmembers: {store: %s, url_file: %q, beat: 1s, ttl: 10s}", store, file))
			l.Create("orders", 1)
			s := l.start()
			for n := range int64(3) {
				l.Produce("orders", 1, 0)
				l.Awaits("orders", laketest.UpTo(n+1, "orders:0"))
			}
			l.Await("it does not know the others", func() bool {
				r := s.Report()
				return r.Ready() == nil && r.Members != nil && r.Members.Status == health.MembersUnknown &&
					r.Members.Reason != "" && strings.Contains(r.Members.Reason, tt.why)
			})
			l.Produce("orders", 1, 0)
			l.Awaits("orders", laketest.UpTo(4, "orders:0"))
		})
	}
}
