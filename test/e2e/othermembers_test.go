//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/health/membership"
	"sluice/internal/admin"
	"sluice/test/lab"
)

// reachable returns a setting that makes a member listen for probes at an address that other machines reach, and that
// address. Members register only such an address, never a loopback address.
func reachable(t *testing.T) (change setting, listen string) {
	t.Helper()
	free, err := lab.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(free)
	if err != nil {
		t.Fatal(err)
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && membership.Dialable(p.Addr()) {
			listen = net.JoinHostPort(p.Addr().String(), port)
			return func(c *settings) { c.listen = listen }, listen
		}
	}
	t.Fatal("this machine has only loopback addresses")
	return nil, ""
}

// TestHoldsOfOtherMembers runs two members and cuts one of them off from the store, so only that member knows its hold.
// The command holds, with the configuration of the other member, must show the hold and the id of the member that has
// it. After that member is killed, the command must say that the member does not answer.
func TestHoldsOfOtherMembers(t *testing.T) {
	t.Parallel()
	for _, r := range registries(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 4)
			end := s.stream(500)
			defer end()
			proxy := s.proxy()
			join := func(more ...setting) registered {
				change, listen := reachable(t)
				m := s.registers(r, false, append(more, change)...)
				m.url = "http://" + listen
				return m
			}
			broken, well := join(through(proxy)), join()
			for _, m := range []registered{broken, well} {
				if k := m.awaitActive(); k.Address != m.url {
					t.Errorf("address %q, want %q", k.Address, m.url)
				}
			}
			broken.await("it has partitions", func(r report) bool { return r.Ready && len(r.Partitions) > 0 })
			well.await("it has partitions", func(r report) bool { return r.Ready && len(r.Partitions) > 0 })
			id := broken.awaitActive().ID

			proxy.Break(lab.Any, 1<<16, lab.Answer(503, false))
			s.await("holds at the other member shows the hold", func() (bool, error) {
				_, text := s.command("holds", "--output", "json", "--config", well.config)
				_, list, _ := strings.Cut("\n"+text, "\n[") // warnings come before it
				var holds []admin.Hold
				if err := json.NewDecoder(strings.NewReader("[" + list)).Decode(&holds); err != nil {
					return false, fmt.Errorf("%w: %s", err, text)
				}
				return slices.ContainsFunc(holds, func(h admin.Hold) bool {
					return h.Reason == "store_down" && slices.Equal(h.From, []string{id})
				}), nil
			})

			broken.kill()
			s.await("holds names the member that does not answer", func() (bool, error) {
				_, text := s.command("holds", "--config", well.config)
				return strings.Contains(text, "the holds that only the member "+id+" at "+broken.url+" knows are not shown: "), nil
			})
			well.drain()
		})
	}
}
