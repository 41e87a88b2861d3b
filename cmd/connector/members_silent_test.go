package main

import (
	"fmt"
	"net"
	"testing"

	"sluice/health"
)

// mute takes connections and never answers.
func mute(t *testing.T) (address string) {
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
		}
	}()
	return l.Addr().String()
}

// TestMembersStoreIsSilent: a store of registrations that takes connections and never answers keeps nobody waiting, from the
// start to the end: records come into the table, the member is ready, and says that it knows nothing of the others.
func TestMembersStoreIsSilent(t *testing.T) {
	for store, url := range map[string]string{"redis": "redis://%s/0", "postgres": "postgres://u:p@%s/db?sslmode=disable"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			file := write(t, fmt.Sprintf(url, mute(t)))
			l := newLake(t, fmt.Sprintf("topics: {orders: {}}\nmembers: {store: %s, url_file: %q, beat: 1s, ttl: 10s}", store, file))
			l.create("orders", 1)
			s := l.start()
			for n := range int64(3) {
				l.produce("orders", 1, 0)
				l.awaits("orders", upTo(n+1, "orders-0"))
			}
			l.await("it does not know the others", func() bool {
				r := s.report()
				return r.Ready() == nil && r.Members != nil && r.Members.Status == health.MembersUnknown && r.Members.Reason != ""
			})
			l.produce("orders", 1, 0)
			l.awaits("orders", upTo(4, "orders-0"))
		})
	}
}
