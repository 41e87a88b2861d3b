package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// storedCommands read what an earlier version stored: commitInfo and txns of the tables, and the operations log.
var storedCommands = [][]string{
	{"verify", "-o", "json"},
	{"table", "inspect", "-o", "json"},
	{"audit", "list", "-o", "json"},
	{"audit", "verify"},
}

var updateStored = flag.Bool("stored", false, "write testdata/stored anew: members of the version before may not read it")

// TestStored: the data that this version stores must have the same field names, and the same names as values, as the
// data that an earlier version stored in testdata/stored. About that data, the commands must print what they printed
// before.
func TestStored(t *testing.T) {
	const golden = "testdata/stored"
	dir, fresh := t.TempDir(), t.TempDir()
	writeStored(t, fresh)
	if *updateStored {
		if err := errors.Join(os.RemoveAll(golden), os.CopyFS(filepath.Join(golden, "lake"), os.DirFS(fresh))); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(storedNames(t, filepath.Join(golden, "lake")), storedNames(t, fresh)); d != "" {
		t.Errorf("names in stored data (-before +now):\n%s", d)
	}
	if err := os.CopyFS(filepath.Join(dir, "lake"), os.DirFS(filepath.Join(golden, "lake"))); err != nil {
		t.Fatal(err)
	}
	cfg := filepath.Join(dir, "config.yaml")
	text := strings.NewReplacer("DIR", filepath.ToSlash(dir), "BROKER", "127.0.0.1:1").Replace(storedConfig)
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range storedCommands {
		code, out, errs := connectorRun(t, append(args, "--config", cfg)...)
		if code != exitOK {
			t.Errorf("%v: exit code %d\n%s\n%s", args, code, out, errs)
		}
		out = strings.ReplaceAll(out, filepath.ToSlash(dir), "DIR")
		file := filepath.Join(golden, strings.Join(args[:2], "_")+".txt")
		if *updateStored {
			if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(read(t, file), out); d != "" {
			t.Errorf("%v (-want +got):\n%s", args, d)
		}
	}
}

const storedConfig = `pipeline: stored
kafka: {brokers: [BROKER], session: 10s}
storage: {url: "file://DIR/lake"}
health: {enabled: false}
ops: {listen: ""}
defaults: {schema: "id string not null, n int", commit: {every: 100ms}, identity: {by: "field:id"}}
topics: {orders: {}}
`

// writeStored runs this version so that it stores everything that it can store: rows, dead letters, ignored fields,
// moved positions, pauses and allowances.
func writeStored(t *testing.T, to string) {
	t.Helper()
	l := newLake(t, "topics: {orders: {}}")
	text := strings.NewReplacer("DIR", filepath.ToSlash(l.Dir), "BROKER", l.Broker.ListenAddrs()[0]).Replace(storedConfig)
	if err := os.WriteFile(l.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	produce := func(partition int32, values ...string) {
		for _, v := range values {
			r := &kgo.Record{Topic: "orders", Partition: partition, Key: []byte("key"), Value: []byte(v)}
			if err := l.Client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.Create("orders", 2)
	produce(0, `{"id":"a","n":1}`, `{"id":"b","n":2,"new":true}`, `{"id":"c","n":"bad"}`, `{"id":"a","n":1}`)
	produce(1, `{"id":"d"}`)
	l.runs(exitOK, "run", "--until-current")
	l.runs(exitOK, "pause", "orders:1", "--reason", "maintenance", "--yes")
	l.runs(exitOK, "offsets", "set", "orders:0", "-2", "--reason", "again", "--yes")
	l.runs(exitOK, "deadletters", "allow", "orders", "--reason", "known", "--yes")
	l.runs(exitOK, "resume", "orders:1", "--reason", "done", "--yes")
	produce(1, `{"id":"e","n":5}`)
	l.runs(exitOK, "run", "--until-current")
	l.runs(exitOK, "pause", "orders", "--reason", "end of the day", "--yes")
	for _, name := range []string{"orders", "orders_letters", "_sluice/stored"} {
		if err := os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(l.Dir, "lake", name))); err != nil {
			t.Fatal(err)
		}
	}
}

// storedNames returns the distinct paths of fields in all JSON files below dir. If the value at a path is a name that
// Sluice or Delta defines, the path ends with that value.
func storedNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	ids := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|[A-Za-z0-9_-]{22}`) // ids of tables and topics
	isName := regexp.MustCompile(`\.(appId|operation|kind|command|outcome|name|type|outputMode|queryId|isolationLevel|provider)$`)
	seen := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				walk(path+"."+name, inner)
			}
		case []any:
			for _, inner := range v {
				walk(path+"[]", inner)
			}
		case string:
			var inner any
			switch {
			case strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &inner) == nil: // statistics and schemas are strings that contain JSON
				walk(path+":", inner)
			case isName.MatchString(path):
				seen[path+" = "+ids.ReplaceAllString(v, "ID")] = true
			default:
				seen[path] = true
			}
		default:
			seen[path] = true
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		for text := range strings.Lines(read(t, path)) {
			var v any
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			relative, _ := filepath.Rel(dir, filepath.Dir(path))
			walk(filepath.ToSlash(relative)+": ", v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(seen))
}
