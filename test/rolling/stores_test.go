//go:build lab

package rolling

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sluice/test/lab"
)

// TestStores changes a group whose fingerprints and registrations are in Postgres, or whose registrations are in Redis, from
// members of the earlier version to members of this one and back. Duplicates are left out in each phase, and each version
// lists the members of both.
func TestStores(t *testing.T) {
	for _, store := range []string{"postgres", "redis"} {
		t.Run(store, func(t *testing.T) {
			url := filepath.Join(t.TempDir(), "url")
			sections := fmt.Sprintf("members: {store: %s, url_file: %q, beat: 1s, ttl: 10s}\n", store, url)
			if store == "postgres" {
				sections += fmt.Sprintf("fingerprints: {store: postgres, url_file: %q}\n", url)
			}
			if err := os.WriteFile(url, []byte(startStore(t, store)), 0o600); err != nil {
				t.Fatal(err)
			}
			g := newGroup(t, sections)
			g.topic("orders")
			g.topic("users")
			stop := g.produceAlways()
			defer stop()

			a := g.start(before)
			g.calm("orders", "users")
			b := g.start(now)
			g.calm("orders", "users")
			g.bothListed()
			g.stop(a)
			g.calm("orders", "users")
			c := g.start(before)
			g.calm("orders", "users")
			g.bothListed()
			g.stop(b)
			g.calm("orders", "users")

			stop()
			g.progress("orders", "users")
			t.Logf("%d records, %d of them bad, %d twice; %d fences", g.produced(), len(g.bad), g.twice, g.fences())
			for _, line := range g.complaints() {
				t.Error(line)
			}
			g.stop(c)
			g.equal()
		})
	}
}

// startStore starts a server for registrations and returns its URL.
func startStore(t *testing.T, store string) (url string) {
	t.Helper()
	var server interface{ Stop() error }
	switch store {
	case "postgres":
		s, err := lab.StartPostgres(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		server, url = s, s.URL
	case "redis":
		s, err := lab.StartRedis(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		server, url = s, s.URL
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return url
}

// bothListed waits until each version lists both running members as running.
func (g *group) bothListed() {
	g.T.Helper()
	for _, v := range []version{before, now} {
		g.Await("the version "+v.name+" lists two members", func() bool {
			var list struct {
				Members []struct{ Active bool }
			}
			out, err := exec.CommandContext(g.T.Context(), v.binary, "members", "list", "--output", "json", "--config", g.configs[v]).Output()
			var failed *exec.ExitError
			if err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1) { // 1: a member has not committed yet, or another finding
				g.T.Fatalf("%v: %s", err, out)
			}
			if err := json.Unmarshal(out, &list); err != nil {
				g.T.Fatalf("%v\n%s", err, out)
			}
			running := 0
			for _, m := range list.Members {
				if m.Active {
					running++
				}
			}
			return running == 2
		})
	}
}
