package main

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector/schema"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

// foreignRecords is the number of records of each partition.
const foreignRecords = 5

// newForeign returns a lake whose topic orders has three partitions and whose table was filled by another program: it
// has the txns of that program and none of Sluice.
func newForeign(t *testing.T, txns map[string]int64) *lake {
	t.Helper()
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 3)
	l.Create("other", 1)
	l.group("p", "other", 0, 0) // unlike Kafka, this broker denies requests about a group that does not exist
	l.Produce("orders", foreignRecords, 0, 1, 2)
	columns, err := schema.ParseDDL("n int")
	if err != nil {
		t.Fatal(err)
	}
	guard := reliability.NewGuard("store", config.Default().Guard(), slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
	table, err := delta.Open(objstore.Sub(l.Store, "orders"), delta.Options{Pipeline: "p", Engine: "another", Schema: columns, Guard: guard})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if _, err := table.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, appID := range slices.Sorted(maps.Keys(txns)) {
		l.Append("orders", fmt.Sprintf(`{"txn":{"appId":%q,"version":%d,"lastUpdated":1}}`, appID, txns[appID]))
	}
	return l
}

// adopts runs offsets adopt with these arguments, and expects the notes in the output and the positions want. Then it
// runs a member and expects as rows exactly the records from these positions on.
func (l *lake) adopts(want map[int32]int64, notes []string, args ...string) {
	l.T.Helper()
	args = append([]string{"adopt", "orders"}, args...)
	before := l.versions("orders")
	out, _ := l.runs(0, slices.Concat([]string{"offsets"}, args, []string{"--dry-run"})...)
	if l.versions("orders") != before {
		l.T.Error("a dry run wrote")
	}
	for _, n := range notes {
		if !strings.Contains(out, n) {
			l.T.Errorf("%q is not in\n%s", n, out)
		}
	}
	p := l.moves(0, args...)
	got := map[int32]int64{}
	for _, m := range p.Moves {
		if got[m.Partition] = m.To; m.From != -1 {
			l.T.Errorf("%+v", m)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		l.T.Errorf("adopted (-want +got):\n%s", d)
	}
	l.runs(0, "run", "--until-current")
	rows := map[string][]int64{}
	for id, next := range want {
		at := fmt.Sprintf("orders:%d", id)
		for o := next; o < foreignRecords; o++ {
			rows[at] = append(rows[at], o)
		}
	}
	l.Has("orders", rows)
	l.runs(0, "verify", "--kafka")
	l.refuses(4, "has positions of this pipeline for topic orders already", args...)
}

func TestOffsetsAdoptFromAGroup(t *testing.T) {
	t.Parallel()
	l := newForeign(t, nil)
	l.group("other", "orders", 0, 3)
	l.group("other", "orders", 1, 5)
	l.refuses(4, "group p has no committed offset for topic orders", "adopt", "orders", "--from", "group")
	l.adopts(map[int32]int64{0: 3, 1: 5, 2: 0}, []string{
		"orders:0   -     3   begins there; committed by group other", "orders:2   -     0   begins there; no position, so it begins at its earliest offset",
		"not what is in a table",
	}, "--from", "group", "--group", "other")
}

// TestOffsetsAdoptFromTheOwnGroup: the pipeline's own group has a committed offset, which forbids an initial commit.
// offsets adopt must make that offset the position.
func TestOffsetsAdoptFromTheOwnGroup(t *testing.T) {
	t.Parallel()
	l := newForeign(t, nil)
	l.group("p", "orders", 0, 4)
	l.runs(1, "run", "--until-current")
	l.adopts(map[int32]int64{0: 4, 1: 0, 2: 0}, nil, "--from", "group")
}

func TestOffsetsAdoptFromIngest(t *testing.T) {
	t.Parallel()
	t.Run("its txns", func(t *testing.T) {
		t.Parallel()
		// kafka-delta-ingest stores the offset of the last record that it wrote as the version of its txn.
		l := newForeign(t, map[string]int64{"ingest-orders-0": 2, "ingest-orders-1": 4, "2c7d3a56-8d9e-4a5b-9c1d-0123456789ab": 7})
		l.adopts(map[int32]int64{0: 3, 1: 5, 2: 0}, []string{"begins there; after the last record of kafka-delta-ingest's ingest-orders"}, "--from", "kdi")
	})
	t.Run("of several", func(t *testing.T) {
		t.Parallel()
		l := newForeign(t, map[string]int64{"a-0": 2, "b-0": 0, "b-1": 0})
		l.refuses(2, "write --app-id with one of a, b", "adopt", "orders", "--from", "kdi")
		l.refuses(4, `for app id "c"`, "adopt", "orders", "--from", "kdi", "--app-id", "c")
		l.adopts(map[int32]int64{0: 1, 1: 1, 2: 0}, nil, "--from", "kdi", "--app-id", "b")
	})
	t.Run("of another topic", func(t *testing.T) {
		t.Parallel()
		l := newForeign(t, map[string]int64{"a-0": 2, "a-7": 0})
		l.refuses(4, "there is a position for partition 7", "adopt", "orders", "--from", "kdi")
		l = newForeign(t, map[string]int64{"a-0": 5})
		l.refuses(4, "orders:0 would begin at 6 (after the last record of kafka-delta-ingest's a), and its log ends at 5", "adopt", "orders", "--from", "kdi")
		l = newForeign(t, nil)
		l.refuses(4, "the table has no txn of kafka-delta-ingest", "adopt", "orders", "--from", "kdi")
	})
}

const query = "2c7d3a56-8d9e-4a5b-9c1d-0123456789ab"

// spark writes a checkpoint folder as Spark 3.5 does and returns its path. ends has the offsets at which each batch
// ends; done is the number of batches that are finished.
func spark(t *testing.T, done int, ends ...map[int32]int64) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("metadata", `{"id":"`+query+`"}`)
	put("sources/0/0", "v1\n{\"orders\":{\"0\":0,\"1\":0}}")
	for batch, end := range ends {
		var parts []string
		for _, id := range slices.Sorted(maps.Keys(end)) {
			parts = append(parts, fmt.Sprintf(`"%d":%d`, id, end[id]))
		}
		put(fmt.Sprintf("offsets/%d", batch), "v1\n"+
			`{"batchWatermarkMs":0,"batchTimestampMs":1732000000000,"conf":{"spark.sql.shuffle.partitions":"200"}}`+"\n"+
			`{"orders":{`+strings.Join(parts, ",")+`}}`)
		put(fmt.Sprintf("offsets/.%d.crc", batch), "crc\x00")
		if batch < done {
			put(fmt.Sprintf("commits/%d", batch), "v1\n{\"nextBatchWatermarkMs\":0}")
		}
	}
	return dir
}

func TestOffsetsAdoptFromSpark(t *testing.T) {
	t.Parallel()
	batches := []map[int32]int64{{0: 1, 1: 1}, {0: 2, 1: 4}, {0: 4, 1: 4, 2: 2}}
	for _, c := range []struct {
		name  string
		done  int
		txns  map[string]int64
		want  map[int32]int64
		notes []string
	}{
		{"all batches are done, and the table says so", 3, map[string]int64{query: 2}, map[int32]int64{0: 4, 1: 4, 2: 2}, []string{"the end of Spark's batch 2"}},
		{
			"the last one is in the table and not in commits", 2,
			map[string]int64{query: 2},
			map[int32]int64{0: 4, 1: 4, 2: 2},
			[]string{"batch 2 is not in commits, and the table has it: it counts"},
		},
		{
			"the last one was begun and is not in the table", 2,
			map[string]int64{query: 1},
			map[int32]int64{0: 2, 1: 4, 2: 0},
			[]string{"the end of Spark's batch 1", "no position, so it begins at its earliest offset"},
		},
		{
			"the table knows nothing of the query", 2, nil,
			map[int32]int64{0: 2, 1: 4, 2: 0},
			[]string{"is what the checkpoint says", "if it is, at most 4 records repeat"},
		},
		{
			"the table was set back", 3,
			map[string]int64{query: 0},
			map[int32]int64{0: 1, 1: 1, 2: 0},
			[]string{"the table has batch 0 of query " + query + " as its last one: the table counts"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newForeign(t, c.txns)
			l.adopts(c.want, c.notes, "--from", "spark", "--checkpoint", spark(t, c.done, batches...))
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		l := newForeign(t, map[string]int64{"mine": 3})
		dir := spark(t, 2, batches...)
		from := func(dir string, more ...string) []string {
			return append([]string{"adopt", "orders", "--from", "spark", "--checkpoint", dir}, more...)
		}
		l.refuses(4, "the table has batch 3 of query mine, the checkpoint ends with batch 2", from(dir, "--app-id", "mine")...)
		l.refuses(4, "no batch of the checkpoint is done", from(spark(t, 0, batches...))...)
		l.refuses(2, "--checkpoint: ", from(filepath.Join(dir, "nowhere"))...)
		l.refuses(1, "there is no checkpoint: read metadata", from(filepath.Join(dir, "offsets"))...)
		l.refuses(1, "its folder offsets is empty", from(spark(t, 0))...)
		for text, want := range map[string]string{
			"v2\n{}\n{}":                               `its format is "v2", known is v1`,
			"v1\n{}\n{\"users\":{\"0\":1}}\n-":         "no source reads topic orders, they read users",
			"v1\n{}\n{\"orders\":{\"0\":-1}}":          `partition "0" of topic orders has offset -1`,
			"v1\n{}\n{\"orders\":{\"one\":1}}":         `partition "one" of topic orders has offset 1`,
			"v1\n{}\n{\"orders\":{}}\n{\"orders\":{}}": "two sources read topic orders",
		} {
			if err := os.WriteFile(filepath.Join(dir, "offsets", "1"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			l.refuses(1, want, from(dir)...)
		}
	})
	t.Run("its place", func(t *testing.T) {
		t.Parallel()
		l := newForeign(t, nil)
		l.adopts(map[int32]int64{0: 4, 1: 4, 2: 2}, nil, "--from", "spark", "--checkpoint", "file://"+filepath.ToSlash(spark(t, 3, batches...)))
	})
}

// TestOffsetsAdoptComparesTheOtherProgramsPosition expects a move to be refused if the other program commits after the
// plan was shown.
func TestOffsetsAdoptComparesTheOtherProgramsPosition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after map[string]int64
		args          []string
	}{
		"kdi, further":      {map[string]int64{"i-0": 2, "i-1": 4}, map[string]int64{"i-0": 3}, []string{"--from", "kdi"}},
		"kdi, once more":    {map[string]int64{"i-0": 2}, map[string]int64{"i-2": 0}, []string{"--from", "kdi"}},
		"spark, further":    {map[string]int64{query: 1}, map[string]int64{query: 2}, []string{"--from", "spark"}},
		"spark, first txn":  {nil, map[string]int64{query: 1}, []string{"--from", "spark"}},
		"another program's": {map[string]int64{"i-0": 2}, map[string]int64{"j": 2}, []string{"--from", "kdi", "--app-id", "i"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newForeign(t, c.before)
			args := slices.Concat([]string{"offsets", "adopt", "orders", "--reason", "r", "--config", l.Config}, c.args)
			if c.args[1] == "spark" {
				args = append(args, "--checkpoint", spark(t, 2, map[int32]int64{0: 1}, map[int32]int64{0: 2}, map[int32]int64{0: 4}))
			}
			cli, _, errs := asked(true, "")
			cli.stdin = readFunc(func(b []byte) (int, error) {
				for appID, version := range c.after {
					l.Append("orders", fmt.Sprintf(`{"txn":{"appId":%q,"version":%d,"lastUpdated":1}}`, appID, version))
				}
				return copy(b, "y\n"), nil
			})
			root := cli.root()
			root.SetArgs(args)
			err := root.ExecuteContext(t.Context())
			if name == "another program's" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if fail.Of(err) != fail.KindRefused || !strings.Contains(err.Error(), "look again") {
				t.Errorf("%v\n%s", err, errs)
			}
		})
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

func TestOffsetsAdoptFlags(t *testing.T) {
	t.Parallel()
	l := newForeign(t, nil)
	for text, args := range map[string][]string{
		`--from "" is unknown`:                         nil,
		`--from "flink" is unknown`:                    {"--from", "flink"},
		"--group has no effect with --from kdi":        {"--from", "kdi", "--group", "g"},
		"--app-id has no effect with --from group":     {"--from", "group", "--app-id", "a"},
		"--checkpoint has no effect with --from group": {"--from", "group", "--checkpoint", "a"},
		"--from spark needs --checkpoint":              {"--from", "spark"},
	} {
		l.refuses(2, text, append([]string{"adopt", "orders"}, args...)...)
	}
}
