package delta_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

var update = flag.Bool("update", false, "write testdata anew")

// trace records the operations of a store.
type trace struct {
	mu    sync.Mutex
	lines []string
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func (tr *trace) line(s string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, uuids.ReplaceAllString(s, "<uuid>"))
}

// all returns the lines so far. Goroutines of the table that still run may add lines to the trace afterwards.
func (tr *trace) all() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.lines)
}

// say adds a comment line to the trace.
func (tr *trace) say(s string) { tr.line("# " + s) }

// golden compares a trace with the file of this name in testdata.
func golden(t *testing.T, name string, tr *trace) {
	t.Helper()
	lines := tr.all()
	// Reads in parallel may come in any order, so their lines are sorted.
	for i := 0; i < len(lines); i++ {
		from := i
		for i < len(lines) && reads.MatchString(lines[i]) {
			i++
		}
		slices.Sort(lines[from:i])
	}
	got := strings.Join(lines, "\n") + "\n"
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

// TestWay compares the store operations of a table, without faults, with golden files: one file for each thing that a
// table does.
func TestWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem, tr := objstore.NewMem(), &trace{}
		store := objstoretest.Traced(mem, tr.line)
		tab := open(t, store)

		tr.say("load: the table is created")
		load(t, tab)
		tr.say("load: nothing new")
		s := load(t, tab)
		tr.say("stage two chunks and commit")
		if _, err := (rowRange{0, 0, 10}).write(t.Context(), tab, s); err != nil {
			t.Fatal(err)
		}
		tr.say("commit without rows")
		idle := rowRange{0, 10, 12}
		if _, err := tab.Commit(t.Context(), idle.commit(nil), idle.pre); err != nil {
			t.Fatal(err)
		}
		tr.say("another writer commits, and we after it")
		foreign(t, mem, deltalog.Add{Path: "foreign.parquet"})
		c := rowRange{1, 0, 5}
		next, err := c.write(t.Context(), tab, s)
		if err != nil {
			t.Fatal(err)
		}
		tr.say("pre refuses: the files are deleted")
		moved := rowRange{1, 3, 6}
		if _, err = moved.write(t.Context(), tab, next); err == nil {
			t.Fatal("pre was not asked")
		}
		tr.say("commits until a checkpoint is due")
		for i := range int64(5) {
			c := rowRange{2, i, i + 1}
			if _, err = tab.Commit(t.Context(), c.commit(nil), c.pre); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		tr.say("another process loads it")
		tab.Close()
		s = load(t, open(t, store))
		if s.Version != 9 || s.Positions[app(0)] != 12 || s.Positions[app(1)] != 5 || s.Positions[app(2)] != 5 {
			t.Errorf("%+v", s)
		}
		golden(t, "way.txt", tr)
	})
}

// TestCommitContent compares the bytes of a commit with the expected lines.
func TestCommitContent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		tab := open(t, mem)
		s := load(t, tab)
		if _, err := (rowRange{3, 0, 2}).write(t.Context(), tab, s); err != nil {
			t.Fatal(err)
		}
		tr := &trace{}
		for v := range int64(2) {
			for line := range strings.Lines(get(t, mem, deltalog.CommitKey(v))) {
				tr.line(sizes.ReplaceAllString(strings.TrimSuffix(line, "\n"), `${1}N`))
			}
		}
		golden(t, "commit.txt", tr)
	})
}

var (
	sizes = regexp.MustCompile(`("size":|"numOutputBytes":")\d+`)
	reads = regexp.MustCompile(`^get _delta_log/\d+\.json -> ok$`)
)
