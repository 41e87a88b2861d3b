//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// patience is how long a test waits for an expected event. It does not measure speed.
const patience = 5 * time.Minute

// scene is the topic, table and group of one test.
type scene struct {
	t      *testing.T
	ctx    context.Context
	name   string   // the name of the topic, of the pipeline and of the group, and the prefix of the table
	addrs  []string // addresses of the brokers
	dir    string
	minio  *lab.MinIO
	bucket *lab.Bucket
	ledger *gen.Ledger
	log    *tablelog.Log
	random *rand.Rand
	orders gen.Orders
	// badLedger receives the records that cannot become rows. If it is nil, such records hold their partitions.
	badLedger *gen.Ledger
	// keysFile is the file of keys for replays through the topic; "" if there is none.
	keysFile string

	produced int64 // the number of the next record to produce
	members  int
}

// newScene creates a topic on the shared broker and returns the test's scene.
func newScene(t *testing.T, partitions int32) *scene {
	t.Helper()
	s := newSceneAt(t, shared.kafka.Addr)
	if err := shared.kafka.CreateTopic(s.ctx, s.name, partitions, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// newSceneAt returns a scene without creating its topic.
func newSceneAt(t *testing.T, addrs ...string) *scene {
	t.Helper()
	s := &scene{
		t: t, ctx: t.Context(), addrs: addrs, minio: shared.minio, bucket: shared.bucket,
		name: strings.NewReplacer("/", "-", "_", "-", ",", "").Replace(strings.ToLower(t.Name())),
	}
	var err error
	if s.dir, err = folder(s.name); err != nil {
		t.Fatal(err)
	}
	s.ledger = s.newLedger("ledger.csv")
	s.log = &tablelog.Log{Store: s.bucket, Table: s.name + "/" + s.name}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("E2E_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("E2E_SEED: %v", err)
		}
	}
	t.Logf("E2E_SEED=%d", seed)
	s.random = rand.New(rand.NewPCG(seed, 0))
	s.orders = gen.Orders{Seed: seed, Span: 200_000, Odd: 20}
	return s
}

func (s *scene) newLedger(name string) *gen.Ledger {
	s.t.Helper()
	ledger, err := gen.NewLedger(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = ledger.Close() })
	return ledger
}

// producer returns a producer of the next n records.
func (s *scene) producer(n int64, codec string) gen.Producer {
	p := gen.Producer{
		Brokers: s.addrs, Topic: s.name, Orders: s.orders, From: s.produced, Records: n, Codec: codec, Letters: s.badLedger,
	}
	s.produced += n
	return p
}

// produce produces n records and waits for them.
func (s *scene) produce(n int64) {
	s.t.Helper()
	if err := s.producer(n, "lz4").Run(s.ctx, s.ledger); err != nil {
		s.t.Fatal(err)
	}
}

// stream produces records at a rate until the caller calls end.
func (s *scene) stream(perSecond int) (end func()) {
	s.t.Helper()
	p := s.producer(1<<40, "zstd")
	p.PerSecond = perSecond
	return s.runs(p)
}

// runs starts a producer, which produces until the caller calls end.
func (s *scene) runs(p gen.Producer) (end func()) {
	stop := make(chan struct{})
	done := make(chan error, 1)
	p.Stop = stop
	go func() { done <- p.Run(s.ctx, s.ledger) }()
	return func() {
		s.t.Helper()
		close(stop)
		if err := <-done; err != nil {
			s.t.Fatal(err)
		}
	}
}

// setting changes the configuration of a member.
type setting func(*settings)

type settings struct {
	brokers string
	rack    string
	group   string
	paced   string // the keys kafka.session and kafka.offset_commit_interval
	store   string
	listen  string
	start   string
	own     string // further keys of the entry of the scene's topic
	more    string // further entries of the key topics
	sasl    string // the key kafka.sasl
	memory  string
	commit  string
	patient string // the keys retry and breaker
	log     string // the level of the log
	timeout string // the key storage.s3.timeout
	bad     string // the key bad_records, and keys that make more records bad
	health  string // the keys below health, except listen
	ops     string // the keys below ops
}

// alsoReads makes a member read further topics: entries are entries of the configuration key topics, with commas
// between them.
func alsoReads(entries string) setting { return func(c *settings) { c.more = ", " + entries } }

// from sets where a member begins to read a topic for which the table has no position: for example latest. Without this
// setting it begins at the first record.
func from(start string) setting { return func(c *settings) { c.start = start } }

// withLetters makes bad records dead letters.
func withLetters(c *settings) { c.bad = "dead_letter" }

// through makes a member send its requests to the store through a proxy.
func through(p *lab.S3Proxy) setting { return func(c *settings) { c.store = p.Endpoint } }

// overCable makes a member connect to Kafka through the proxy that tests can cut.
func overCable(c *settings) { c.brokers = shared.cable.Addr }

// config writes a configuration and returns its path and the member's listen address.
func (s *scene) config(change ...setting) (path, listen string) {
	s.t.Helper()
	listen, err := lab.FreeAddr()
	if err != nil {
		s.t.Fatal(err)
	}
	c := settings{
		brokers: strings.Join(s.addrs, ", "), group: s.name, store: s.minio.Endpoint, listen: listen, start: "earliest",
		memory: "auto", commit: "{every: 1s, rows: 20000}", timeout: "30s", bad: "hold",
		log: "info", ops: `listen: ""`,
		paced:   "session: 6s, offset_commit_interval: 1s",
		patient: "retry: {initial: 100ms, max: 1s}\nbreaker: {open_for: 2s, successes: 1}",
	}
	if s.badLedger != nil {
		c.bad = "dead_letter"
	}
	if p := s.orders.Policy; p != (gen.Policy{}) {
		c.bad += strictly(p)
	}
	if s.keysFile != "" {
		c.ops += fmt.Sprintf(", replay_secret_file: %q", s.keysFile)
	}
	for _, f := range change {
		f(&c)
	}
	s.members++
	path = filepath.Join(s.dir, fmt.Sprintf("config-%d.yaml", s.members))
	text := fmt.Sprintf(`
pipeline: %[1]s
log: {format: json, level: %[20]s}
memory: {limit: %[12]s}
kafka: {brokers: [%[2]s], group: %[11]s, rack: %[9]q, sasl: {%[18]s}, %[21]s}
storage: {url: s3://%[3]s/%[1]s, s3: {endpoint: %[4]s, region: %[5]s, path_style: true, timeout: %[15]s}}
%[14]s
defaults:
  schema: %[6]q
  start: %[8]s
  commit: %[13]s
  bad_records: %[16]s
topics: {%[1]s: {%[17]s}%[10]s}
health: {listen: %[7]q%[19]s}
ops: {%[22]s}
shutdown: {drain: 10s}
`, s.name, c.brokers, s.bucket.Name, c.store, lab.Region, gen.DDL, c.listen, c.start, c.rack, c.more, c.group, c.memory, c.commit, c.patient, c.timeout,
		c.bad, c.own, c.sasl, c.health, c.log, c.paced, c.ops)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path, listen
}

// environment returns the environment of every connector. A binary with the race detector ends at a data race.
func environment() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + lab.AccessKey, "AWS_SECRET_ACCESS_KEY=" + lab.SecretKey, "GORACE=halt_on_error=1"}
}

// start starts a member. If it still runs at the end of the test, it is killed.
func (s *scene) start(change ...setting) *member {
	s.t.Helper()
	path, listen := s.config(change...)
	name := fmt.Sprintf("member %d", s.members)
	p, err := lab.StartProcess(name, filepath.Join(s.dir, fmt.Sprintf("member-%d.log", s.members)), environment(),
		shared.binary, "run", "--config", path)
	if err != nil {
		s.t.Fatal(err)
	}
	m := &member{Process: p, s: s, url: "http://" + listen, config: path}
	s.t.Cleanup(func() { _ = p.Kill() })
	return m
}

// command runs a command of the binary and returns its exit code and output.
func (s *scene) command(args ...string) (code int, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, shared.binary, args...)
	cmd.Env = append(os.Environ(), environment()...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		s.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, tail(out))
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// wants runs a command of the binary with the scene's configuration and returns the output. Another exit code than code
// fails the test.
func (s *scene) wants(code int, args ...string) string {
	s.t.Helper()
	path, _ := s.config()
	got, text := s.command(append(args, "--config", path)...)
	if got != code {
		s.t.Errorf("connector %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, tail([]byte(text)))
	}
	return text
}

func tail(text []byte) string { return string(text[max(0, len(text)-3000):]) }

// untilCurrent runs a new member until it has moved all records in Kafka to the table.
func (s *scene) untilCurrent(change ...setting) {
	s.t.Helper()
	path, _ := s.config(change...)
	if code, text := s.command("run", "--until-current", "--config", path); code != 0 {
		s.t.Errorf("connector run --until-current: exit code %d: %s", code, tail([]byte(text)))
	}
}

// await waits until check returns true. The text in what completes the sentence "wait until".
func (s *scene) await(what string, check func() (bool, error)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := lab.Until(ctx, check); err != nil {
		s.t.Fatalf("wait until %s: %v", what, err)
	}
}

// commits returns the commits in the table's log.
func (s *scene) commits() []tablelog.Commit {
	s.t.Helper()
	commits, err := s.log.Read(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return commits
}

// awaitRows waits until the table has at least n rows.
func (s *scene) awaitRows(n int64) {
	s.t.Helper()
	s.await(fmt.Sprintf("the table has %d rows", n), func() (bool, error) {
		commits, err := s.log.Read(s.ctx)
		return tablelog.Rows(commits) >= n, err
	})
}

// awaitPosition waits until the table's position of a partition is at least next.
func (s *scene) awaitPosition(partition int32, next int64) {
	s.t.Helper()
	s.await(fmt.Sprintf("partition %d has position %d", partition, next), func() (bool, error) {
		commits, err := s.log.Read(s.ctx)
		return tablelog.Positions(commits)[partition] >= next, err
	})
}

// check compares the table with the ledger, using independent readers, and runs `connector verify`.
func (s *scene) check(args ...string) {
	s.t.Helper()
	s.checkSets(args...)
	s.wants(0, "verify", "--kafka")
}

// checkSets compares the table with the ledger, using independent readers.
func (s *scene) checkSets(args ...string) {
	s.t.Helper()
	s.checkWith(lab.Python, args...)
}

func (s *scene) checkWith(run func(context.Context, string, ...string) ([]byte, error), args ...string) {
	s.t.Helper()
	if err := s.ledger.Flush(); err != nil {
		s.t.Fatal(err)
	}
	args = append([]string{
		"--ledger", s.ledger.Path, "--table", "s3://" + s.bucket.Name + "/" + s.log.Table,
		"--endpoint", s.minio.Endpoint,
	}, args...)
	out, err := run(s.ctx, "oracle/check.py", args...)
	s.t.Logf("%d records in the ledger\n%s", s.ledger.Len(), out)
	if err != nil {
		s.t.Errorf("the table differs from the produced records: %v", err)
	}
}

// proxy starts a proxy in front of the store.
func (s *scene) proxy() *lab.S3Proxy {
	s.t.Helper()
	p, err := lab.StartS3Proxy(s.minio.Endpoint)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = p.Close() })
	return p
}

// met waits until a fault has hit a request.
func (s *scene) met(f *lab.Fault) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if _, err := f.Wait(ctx); err != nil {
		s.t.Fatal(err)
	}
}
