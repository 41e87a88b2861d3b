package admin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/sink/delta/objstore"
)

// TestFoldersWithLogs: the folders directly in the store that have a Delta log are tables; other folders, objects at the
// top and tables further down are not.
func TestFoldersWithLogs(t *testing.T) {
	t.Parallel()
	local, err := objstore.NewLocal(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = local.Close() }()
	for name, store := range map[string]objstore.Store{"memory": objstore.NewMem(), "directory": local} {
		for _, key := range []string{
			"a/_delta_log/0.json", "a/part-1.parquet", "a-b/_delta_log/0.json", "a.txt", "a0/_delta_log/0.json", "b/c/_delta_log/0.json", "_sluice/p/ops/1.json", "z/_delta_logs/0.json", "zz/_delta_log/0.json",
		} {
			if err := store.Put(t.Context(), key, strings.NewReader("{}"), objstore.IfAbsent); err != nil {
				t.Fatal(err)
			}
		}
		tables, more, err := foldersWithLogs(t.Context(), store)
		if d := cmp.Diff([]string{"a-b", "a", "a0", "zz"}, tables); d != "" || more || err != nil {
			t.Errorf("%s: %v, %v (-want +got):\n%s", name, more, err, d)
		}
	}
}

// TestFoldersWithLogs_Many: a bucket with many folders is not listed to its end.
func TestFoldersWithLogs_Many(t *testing.T) {
	t.Parallel()
	for _, n := range []int{maxFoundTables, maxFoundTables + 1} {
		store := objstore.NewMem()
		for i := range n {
			if err := store.Put(t.Context(), fmt.Sprintf("t%04d/_delta_log/0.json", i), strings.NewReader("{}"), objstore.IfAbsent); err != nil {
				t.Fatal(err)
			}
		}
		tables, more, err := foldersWithLogs(t.Context(), store)
		if len(tables) != maxFoundTables || more != (n > maxFoundTables) || err != nil {
			t.Errorf("%d folders: %d tables, %v, %v", n, len(tables), more, err)
		}
	}
}
