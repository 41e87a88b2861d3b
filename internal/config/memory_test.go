package config

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"
)

func TestDivide(t *testing.T) {
	for _, tt := range []struct {
		limit, cgroup int64
		want          string // "" if Divide returns an error
	}{
		{0, 0, "512MiB, no cgroup limit: 76MiB to fetch, 204MiB for batches"},
		{0, 1 << 30, "819MiB, 80% of the cgroup's 1GiB: 122MiB to fetch, 327MiB for batches"},
		{256 << 20, 1 << 30, "38MiB to fetch, 102MiB for batches"},
		{128 << 20, 0, "12MiB to fetch, 34MiB for batches"},
		{100 << 20, 0, ""},
		{0, 128 << 20, ""},
	} {
		b, err := divide(tt.limit, tt.cgroup)
		if err != nil && tt.want != "" || err == nil && b.String() != tt.want {
			t.Errorf("divide(%d, %d): %v, %v", tt.limit, tt.cgroup, b, err)
		}
	}
	_, err := divide(0, 128<<20)
	if want := "102MiB (80% of the cgroup's 128MiB) is less than 128MiB"; err == nil || !strings.HasPrefix(strings.Replace(err.Error(), "107374180B", "102MiB", 1), want) {
		t.Error(err)
	}
}

func TestLimitOfContainer(t *testing.T) {
	for _, tt := range []struct {
		limit, cgroup int64
		want          bool
	}{{0, 1 << 30, false}, {800 << 20, 1 << 30, false}, {900 << 20, 1 << 30, true}, {2 << 30, 1 << 30, true}, {2 << 30, 0, false}} {
		b, err := divide(tt.limit, tt.cgroup)
		if err != nil || b.exceeds(tt.cgroup) != tt.want {
			t.Errorf("%d of %d: %v, %v", tt.limit, tt.cgroup, !tt.want, err)
		}
	}
}

// TestEncoders: a budget has as many encoders as the machine has cores, or fewer if memory is short.
func TestEncoders(t *testing.T) {
	for _, tt := range []struct {
		limit       int64
		cores, want int
	}{{512 << 20, 2, 2}, {256 << 20, 2, 2}, {128 << 20, 2, 1}, {128 << 20, 64, 9}, {512 << 20, 8, 8}, {8 << 30, 64, 64}} {
		b, err := divide(tt.limit, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Encoders(tt.cores); got != tt.want {
			t.Errorf("%d bytes, %d cores: %d, want %d", tt.limit, tt.cores, got, tt.want)
		}
	}
}

// TestRoomForTables: a limit has room for the expected number of tables, and forTables returns the limit that more
// tables need. The loader warns of a limit that is too small for the configured topics.
func TestRoomForTables(t *testing.T) {
	for _, tt := range []struct {
		limit, fingerprints int64
		want                int
	}{{128 << 20, 0, 61}, {256 << 20, 0, 430}, {512 << 20, 0, 1168}, {512 << 20, 400 << 20, 16}, {128 << 20, 100 << 20, 1}} {
		b, err := divide(tt.limit, 0)
		if err != nil {
			t.Fatal(err)
		}
		b = b.beside(tt.fingerprints)
		if got := b.Tables(); got != tt.want {
			t.Errorf("%d bytes, %d for fingerprints: %d tables, want %d", tt.limit, tt.fingerprints, got, tt.want)
		}
		if got := b.forTables(tt.want); got != tt.limit {
			t.Errorf("%d tables want %d, not %d", tt.want, got, tt.limit)
		}
	}
	b := defaultBudget()
	if got := b.forTables(5000); got != 1856<<20 {
		t.Errorf("5000 tables: %d", got>>20)
	}
	var topics strings.Builder
	for i := range 62 {
		fmt.Fprintf(&topics, "  t%d: {}\n", i)
	}
	file := "memory: {limit: 128MiB}\npipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///x}\ndefaults: {schema: a int%s}\ntopics:\n" + topics.String()
	const want = "128MiB has room for 61 tables beside the pools, the topics have 62: write 192MiB or more"
	if _, problems := Load(write(t, strings.Replace(file, "%s", "", 1)), noEnv); len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
		t.Error(problems)
	}
	if _, problems := Load(write(t, strings.Replace(file, "%s", ", table: all", 1)), noEnv); len(problems) > 0 {
		t.Error(problems)
	}
}

// TestRuntime_SmallLimit: the memory limit of the garbage collector is 32 MiB below memory.limit, and by some MiB more
// if memory.limit is below 256 MiB.
func TestRuntime_SmallLimit(t *testing.T) {
	for limit, want := range map[int64]int64{128: 37, 256: 32, 512: 32} {
		b, err := divide(limit<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := (b.Limit - b.runtime()) >> 20; got != want {
			t.Errorf("a limit of %d MiB leaves %d MiB, want %d", limit, got, want)
		}
	}
}

// TestLimitRuntime: the Go runtime gets a memory limit from the budget, unless GOMEMLIMIT sets one.
func TestLimitRuntime(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	b, err := divide(300<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	b.LimitRuntime(logger, func(string) string { return "1GiB" })
	if got := debug.SetMemoryLimit(-1); got != before || !strings.Contains(out.String(), "1GiB (environment)") {
		t.Errorf("%d, want %d: %s", got, before, &out)
	}
	b.LimitRuntime(logger, func(string) string { return "" })
	if got := debug.SetMemoryLimit(-1); got != 268<<20 {
		t.Errorf("%d before, %d now", before, got)
	}
	if !strings.Contains(out.String(), "limit=300MiB source=configured fetch=45MiB batch=120MiB") {
		t.Error(&out)
	}
}

// TestFetchFitsMemory: without kafka.fetch.max_bytes, the loader derives it from memory.limit. A configured value that
// is too large for the fetch pool is refused.
func TestFetchFitsMemory(t *testing.T) {
	const rest = "\npipeline: p\nkafka: {brokers: [a:1]%s}\nstorage: {url: file:///x}\ndefaults: {schema: a int}\ntopics: {t: {}}\n"
	with := func(fetch string) string { return "memory: {limit: 256MiB}" + strings.Replace(rest, "%s", fetch, 1) }
	c := mustLoad(t, write(t, with("")), nil)
	if c.Kafka.Fetch.MaxBytes != c.Budget.fetch/8 || c.Budget.Limit != 256<<20 {
		t.Errorf("%+v %+v", c.Kafka.Fetch, c.Budget)
	}
	if c = mustLoad(t, write(t, with(", fetch: {max_bytes: 16MiB}")), nil); c.Kafka.Fetch.MaxBytes != 16<<20 {
		t.Errorf("%+v", c.Kafka.Fetch)
	}
	_, problems := Load(write(t, with(", fetch: {max_bytes: 20MiB}")), noEnv)
	const want = "kafka.fetch.max_bytes: 20MiB is more than half of the 38MiB that memory.limit (256MiB) gives to fetching: write 19MiB or less, or raise memory.limit"
	if len(problems) != 1 || !strings.HasSuffix(problems[0].String(), want) {
		t.Error(problems)
	}
}
