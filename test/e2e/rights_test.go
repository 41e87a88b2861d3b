//go:build lab

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/lab"
)

// s3Rights is the table of S3 rights in docs/security.md. Each row allows some actions on the keys that place matches.
type s3Rights []struct {
	place   *regexp.Regexp
	actions []string
}

// readS3Rights reads s3Rights from docs/security.md. It fails the test if the page misses a place.
func readS3Rights(t *testing.T) (rights s3Rights) {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n| below `storage.url` | actions |")
	section, _, _ = strings.Cut(section, "\n\n")
	places := map[string]string{
		"tables, their folders `_delta_log/`": `/_delta_log/`, "tables, their data files": `\.parquet$`,
		"`_sluice/selftest/`": `^_sluice/selftest/`, "`_sluice/*/ops/`": `^_sluice/[^/]+/ops/`, "`_sluice/*/letters/`": `^_sluice/[^/]+/letters/`,
	}
	action := regexp.MustCompile("`(s3:\\w+)`")
	for row := range strings.Lines(section) {
		cells := strings.Split(row, " | ")
		place := places[strings.TrimPrefix(cells[0], "| ")]
		if len(cells) != 3 || place == "" {
			continue
		}
		var actions []string
		for _, m := range action.FindAllStringSubmatch(cells[1], -1) {
			actions = append(actions, m[1])
		}
		rights = append(rights, struct {
			place   *regexp.Regexp
			actions []string
		}{regexp.MustCompile(place), actions})
	}
	if len(rights) != len(places) {
		t.Fatalf("the page has %d places, want %d", len(rights), len(places))
	}
	return rights
}

// action returns the S3 action that a request needs, such as s3:GetObject. key is the key of the object, or the prefix
// of a list. For a method that no right is about, name is the method.
func action(r *http.Request) (name, key string) {
	_, key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && key == "":
		return "s3:ListBucket", r.URL.Query().Get("prefix")
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		return "s3:GetObject", key
	case r.Method == http.MethodPut:
		return "s3:PutObject", key
	case r.Method == http.MethodDelete:
		return "s3:DeleteObject", key
	default:
		return r.Method, key
	}
}

// TestS3Rights runs a member and commands through a proxy that records the action and the key of each request.
// docs/security.md must list every action for the place of its key. Every listed action must occur, except the deletion
// of data files, which only a lost commit needs.
func TestS3Rights(t *testing.T) {
	t.Parallel()
	rights := readS3Rights(t)
	s := newScene(t, 2)
	proxy := s.proxy()
	var mu sync.Mutex
	used, refused := map[string]bool{}, map[string]bool{}
	proxy.Slow(func(r *http.Request) bool {
		name, key := action(r)
		key, _ = strings.CutPrefix(key, s.name+"/")
		mu.Lock()
		defer mu.Unlock()
		for i, place := range rights {
			if place.place.MatchString(key) {
				used[fmt.Sprint(i, " ", name)] = true
				if !slices.Contains(place.actions, name) {
					refused[name+" "+key] = true
				}
				return false
			}
		}
		refused[name+" "+key] = true
		return false
	}, 0)
	// The dead-letter topic accepts no large records, so the member must write the large dead letter to the bucket.
	if err := shared.kafka.CreateTopic(s.ctx, s.name+"-dlq", 2, map[string]string{"max.message.bytes": "4000"}); err != nil {
		t.Fatal(err)
	}
	change := []setting{through(proxy), withLetters}
	config, _ := s.config(change...)
	command := func(args ...string) {
		t.Helper()
		if code, text := s.command(append(args, "--config", config)...); code != 0 {
			t.Errorf("connector %s: exit code %d: %s", strings.Join(args, " "), code, tail([]byte(text)))
		}
	}
	m := s.start(change...)
	s.produce(1000)
	large := &kgo.Record{Topic: s.name, Value: []byte(`{"order_id": "` + strings.Repeat("x", 20_000) + `", "quantity": "two"}`), Partition: 1}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(s.ctx, large).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s.awaitRows(1000)
	m.countsLetters(1)
	command("deadletters", "show", fmt.Sprintf("%s:1@%d", s.name, large.Offset), "--value")
	command("deadletters", "acknowledge", fmt.Sprintf("%s:1@%d", s.name, large.Offset), "--reason", "a test", "--operator", "e2e", "--yes")
	command("pause", s.name, "--reason", "a test", "--operator", "e2e", "--yes")
	command("resume", s.name, "--reason", "a test", "--operator", "e2e", "--yes")
	command("verify", "--kafka")
	m.drain()
	mu.Lock()
	defer mu.Unlock()
	t.Log(slices.Sorted(maps.Keys(used)))
	for request := range refused {
		t.Errorf("docs/security.md does not list %s", request)
	}
	for i, place := range rights {
		for _, name := range place.actions {
			if name == "s3:DeleteObject" && strings.Contains(place.place.String(), "parquet") {
				continue // for commits that were lost, which this test does not have
			}
			if !used[fmt.Sprint(i, " ", name)] {
				t.Errorf("nothing needs %s below %s", name, place.place)
			}
		}
	}
}
