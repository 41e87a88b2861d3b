//go:build lab

package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/health/membership"
	"sluice/health/membership/membershiptest"
	"sluice/test/lab"
)

func TestStoreLab(t *testing.T) {
	url := os.Getenv("SLUICE_TEST_REDIS")
	if url == "" {
		t.Fatal("SLUICE_TEST_REDIS is not set: go run ./test/lab/with redis go test -tags lab ./health/membership/redis")
	}
	databases := 0 // number of the next database: an id is a key of its database, in any scope, so each test gets one
	membershiptest.Run(t, func(t *testing.T, _ string) membershiptest.Server {
		url := fmt.Sprint(url, "/", databases)
		databases++
		own := open(t, url, scope)
		t.Cleanup(func() { _ = own.Close() })
		return membershiptest.Server{
			Open: func(t *testing.T, scope membership.Scope) membership.Store { return open(t, url, scope) },
			Pass: time.Sleep, Unit: time.Second,
			Lose: func(t *testing.T, _ membership.Scope, id string) {
				if err := own.client.Del(t.Context(), "worker:connector:"+id).Err(); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

// TestFaultsLab: a call to a server that is paused or killed ends in time with an error, and works once the server is
// back. After a wipe the next heartbeat is fresh. Values of other programs at the keys are reported as foreign.
func TestFaultsLab(t *testing.T) {
	r, err := lab.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}()
	store := open(t, r.URL, scope)
	defer store.Close()
	beat := func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return store.Beat(ctx, membership.Beat{ID: "a", Status: membership.Running, TTL: time.Hour})
	}
	works := func(when string, fresh bool) {
		t.Helper()
		if got, err := beat(); err != nil || got != fresh {
			t.Errorf("%s: fresh %v, %v; want %v", when, got, err, fresh)
		}
	}
	works("at first", true)
	// The server has the registration and the four keys of the scope's index, and no other keys.
	keys, err := store.client.Keys(t.Context(), "*").Result()
	slices.Sort(keys)
	want := []string{"sluice:members:p:g:expires", "sluice:members:p:g:last", "sluice:members:p:g:seen", "sluice:members:p:g:status", "worker:connector:a"}
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("keys %q, %v", keys, err)
	}

	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := beat(); !errors.Is(err, membership.ErrUnavailable) {
		t.Errorf("paused: %v", err)
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	// The server may first answer requests from before the pause.
	if err := lab.Until(t.Context(), func() (bool, error) { _, err := beat(); return err == nil, nil }); err != nil {
		t.Fatal(err)
	}
	works("after a pause", false)

	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := beat(); !errors.Is(err, membership.ErrUnavailable) {
		t.Errorf("killed: %v", err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := beat(); err != nil {
		t.Errorf("after a crash: %v", err)
	}

	if err := r.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	works("wiped", true)

	if err := store.client.Set(t.Context(), "worker:connector:a", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if members, err := store.Members(t.Context()); !errors.Is(err, membership.ErrForeign) || len(members) != 1 || members[0].Registered {
		t.Errorf("text at the key: %+v, %v", members, err)
	}
	works("overwritten", true)
	if err := store.client.Set(t.Context(), "sluice:members:p:g:status", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := beat(); !errors.Is(err, membership.ErrForeign) {
		t.Errorf("another type in the index: %v", err)
	}
}

// TestRightsLab: the documented rights are enough, and the error names each one that is missing.
func TestRightsLab(t *testing.T) {
	r, err := lab.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}()
	page, err := os.ReadFile("../../../docs/members.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, _ := strings.Cut(string(page), "ACL SETUSER sluice on >")
	rights, _, found := strings.Cut(rights, "\n")
	if !found {
		t.Fatal("the page does not say what a user needs")
	}
	admin := open(t, r.URL, scope)
	defer admin.Close()
	grant := func(rights ...string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "sluice", "reset", "on"}
		for _, right := range rights {
			args = append(args, right)
		}
		if err := errors.Join(admin.client.Do(t.Context(), args...).Err(), admin.client.FlushAll(t.Context()).Err(),
			admin.client.ScriptFlush(t.Context()).Err()); err != nil {
			t.Fatal(err)
		}
	}
	words := strings.Fields(">" + rights)
	user := strings.Replace(r.URL, "redis://", "redis://sluice:"+words[0][1:]+"@", 1) + "/0"
	all := func() error {
		store := open(t, user, scope)
		defer store.Close()
		_, beatErr := store.Beat(t.Context(), membership.Beat{ID: "a", Status: membership.Running, TTL: time.Millisecond})
		_, membersErr := store.Members(t.Context())
		time.Sleep(5 * time.Millisecond) // the ttl
		_, sweepErr := store.Sweep(t.Context(), 0)
		_, againErr := store.Beat(t.Context(), membership.Beat{ID: "b", Status: membership.Running, TTL: time.Minute})
		return errors.Join(beatErr, membersErr, sweepErr, againErr, store.Leave(t.Context(), "b"))
	}
	grant(words...)
	if err := all(); err != nil {
		t.Errorf("with %q: %v", words, err)
	}
	for i, word := range words[1:] {
		if word[0] != '+' && word[0] != '~' {
			continue
		}
		grant(slices.Delete(slices.Clone(words), i+1, i+2)...)
		if err := all(); !errors.Is(err, membership.ErrUnavailable) || !strings.Contains(err.Error(), "what the user may do") {
			t.Errorf("without %s: %v", word, err)
		}
	}
}
