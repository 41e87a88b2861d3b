//go:build lab

package pods

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

const (
	// patience is how long a test waits for an expected event. It does not measure speed.
	patience = 5 * time.Minute
	limit    = 256 << 20
	user     = "65532"
)

// scene is a topic with a table, and the members that move records from one to the other.
type scene struct {
	t       *testing.T
	topic   string
	ledger  *gen.Ledger
	log     *tablelog.Log
	members []*kubelet
	started int
}

func newScene(t *testing.T, topic string) *scene {
	t.Helper()
	if err := shared.kafka.CreateTopic(t.Context(), topic, 8, nil); err != nil {
		t.Fatal(err)
	}
	ledger, err := gen.NewLedger(filepath.Join(t.TempDir(), "ledger.csv"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ledger.Close() })
	return &scene{t: t, topic: topic, ledger: ledger, log: &tablelog.Log{Store: shared.bucket, Table: topic + "/" + topic}}
}

// values are the values of the chart for one member. It has ports of its own, because all pods share this machine's
// network.
func (s *scene) values(port int) string {
	return fmt.Sprintf(`
replicas: 1
image: {repository: localhost/sluice, tag: lab, pullPolicy: Never}
healthPort: %d
drainSeconds: 10
resources: {requests: {memory: 256Mi}, limits: {memory: 256Mi}}
extraEnv:
  - {name: AWS_ACCESS_KEY_ID, value: %s}
  - {name: AWS_SECRET_ACCESS_KEY, value: %s}
config:
  pipeline: %[4]s
  log: {format: json}
  kafka: {brokers: [%[5]q], session: 6s, offset_commit_interval: 1s}
  storage: {url: s3://%[6]s/%[4]s, s3: {endpoint: %[7]s, region: %[8]s, path_style: true}}
  retry: {initial: 100ms, max: 1s}
  breaker: {open_for: 2s, successes: 1}
  defaults: {schema: %[9]q, commit: {every: 1s}}
  topics: {%[4]s: {}, orders: null}
  ops: {listen: ""}
`, port, lab.AccessKey, lab.SecretKey, s.topic, shared.kafka.Addr, shared.bucket.Name, shared.minio.Endpoint, lab.Region, gen.DDL)
}

// start plays the pod of a new member.
func (s *scene) start() *kubelet {
	s.t.Helper()
	addr, err := lab.FreeAddr()
	if err != nil {
		s.t.Fatal(err)
	}
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.started++
	name := fmt.Sprintf("member-%d", s.started)
	return play(s.t, name, render(s.t, name, s.values(tcp.Port)))
}

// stream produces records until the caller calls end.
func (s *scene) stream() (end func()) {
	stop, done := make(chan struct{}), make(chan error, 1)
	p := gen.Producer{
		Brokers: []string{shared.kafka.Addr}, Topic: s.topic, Orders: gen.Orders{Seed: 18, Span: 200_000, Odd: 20},
		Records: 1 << 40, Codec: "zstd", PerSecond: rate, Stop: stop,
	}
	go func() { done <- p.Run(s.t.Context(), s.ledger) }()
	return func() {
		s.t.Helper()
		close(stop)
		if err := <-done; err != nil {
			s.t.Fatal(err)
		}
	}
}

// rows returns the number of rows in the table.
func (s *scene) rows() int64 {
	s.t.Helper()
	commits, err := s.log.Read(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return tablelog.Rows(commits)
}

// awaitRows waits until the table has at least n rows.
func (s *scene) awaitRows(n int64) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("the table has %d rows", n), func() (bool, error) {
		commits, err := s.log.Read(s.t.Context())
		return tablelog.Rows(commits) >= n, err
	})
}

// progress waits until each member is ready and the table has grown.
func (s *scene) progress() {
	s.t.Helper()
	for _, m := range s.members {
		m.awaitReady()
	}
	s.awaitRows(s.rows() + rate)
}

func until(ctx context.Context, check func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return lab.Until(ctx, check)
}

func await(t *testing.T, what string, check func() (bool, error)) {
	t.Helper()
	if err := until(t.Context(), check); err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}

// TestPods runs members in pods of the rendered chart while records arrive: a rolling restart, a member that the kernel
// kills for its memory, a member that is killed, and one that is suspended until its liveness probe fails. In the end the
// table must have each record once.
func TestPods(t *testing.T) {
	s := newScene(t, "orders-in-pods")
	end := s.stream()
	for range members {
		s.members = append(s.members, s.start())
	}
	s.progress()
	for _, m := range s.members {
		m.confined()
	}
	for round := range rounds {
		s.rollingRestart()
		s.progress()

		m := s.members[round%members]
		m.outOfMemory()
		if r := m.awaitRestart(1); r.killed || r.exit != 128+int(syscall.SIGKILL) {
			t.Errorf("the restart after the lack of memory: %+v", r)
		}
		s.progress()

		m = s.members[(round+1)%members]
		m.signal(syscall.SIGKILL)
		if r := m.awaitRestart(1); r.killed || r.exit != 128+int(syscall.SIGKILL) {
			t.Errorf("the restart after SIGKILL: %+v", r)
		}
		s.progress()

		m.signal(syscall.SIGSTOP)
		if r := m.awaitRestart(2); !r.killed || !strings.Contains(r.why, "liveness probe failed 3 times") {
			t.Errorf("the restart of the suspended member: %+v", r)
		}
		s.progress()
	}
	end()
	s.awaitRows(s.ledger.Len())
	for _, m := range s.members {
		m.terminate()
	}
	s.check()
}

// rollingRestart does what the Deployment's controller does after a change of the template: a new pod starts; once it is
// ready, an old one ends.
func (s *scene) rollingRestart() {
	s.t.Helper()
	update := s.members[0].manifest.Spec.Strategy.RollingUpdate
	if update.MaxSurge != 1 || update.MaxUnavailable != 0 {
		s.t.Fatalf("the manifest wants another order: %+v", update)
	}
	for i, old := range s.members {
		s.members[i] = s.start()
		s.members[i].awaitReady()
		old.terminate()
	}
}

// check compares the table with the ledger by independent readers, and runs `connector verify` in a container.
func (s *scene) check() {
	s.t.Helper()
	if err := s.ledger.Flush(); err != nil {
		s.t.Fatal(err)
	}
	out, err := lab.Python(s.t.Context(), "oracle/check.py", "--ledger", s.ledger.Path, "--table", "s3://"+shared.bucket.Name+"/"+s.log.Table, "--endpoint", shared.minio.Endpoint)
	s.t.Logf("%d records in the ledger\n%s", s.ledger.Len(), out)
	if err != nil {
		s.t.Errorf("the table differs from the produced records: %v", err)
	}
	last := s.members[0]
	config := regexp.MustCompile(`(?s)config\.yaml: \|\n(.*?)\nkind:`).FindStringSubmatch(last.manifest.play)
	if config == nil {
		s.t.Fatalf("no configuration in\n%s", last.manifest.play)
	}
	file := filepath.Join(s.t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(config[1]), 0o644); err != nil {
		s.t.Fatal(err)
	}
	out2, err := shared.podman.Run(s.t.Context(), "run", "--rm", "--network", "host", "--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp", "--cap-drop", "all", "--memory", "256m",
		"--volume", file+":/etc/sluice/config.yaml:ro", "--env", "AWS_ACCESS_KEY_ID="+lab.AccessKey, "--env", "AWS_SECRET_ACCESS_KEY="+lab.SecretKey,
		image, "verify", "--kafka", "--config", "/etc/sluice/config.yaml")
	s.t.Log(out2)
	if err != nil {
		s.t.Error(err)
	}
}

// confined expects that the container's process has the limits and rights of the manifest.
func (k *kubelet) confined() {
	k.t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", k.process(), name))
		if err != nil {
			k.t.Fatal(err)
		}
		return string(text)
	}
	status := read("status")
	for _, want := range []string{`Uid:\s+` + user + `\s+` + user, `CapEff:\s+0+\n`, `CapBnd:\s+0+\n`, `NoNewPrivs:\s+1`} {
		if !regexp.MustCompile(want).MatchString(status) {
			k.t.Errorf("%s: /proc/PID/status does not have %s:\n%s", k.name, want, status)
		}
	}
	if !regexp.MustCompile(`(?m)^\S+ \S+ \S+ \S+ / ro[ ,]`).MatchString(read("mountinfo")) {
		k.t.Errorf("%s: the root file system can be written:\n%s", k.name, read("mountinfo"))
	}
	if got, err := os.ReadFile(filepath.Join(k.cgroup(), limitFile(k.cgroup()))); err != nil || strings.TrimSpace(string(got)) != fmt.Sprint(limit) {
		k.t.Errorf("%s: the limit of memory is %s (%v)", k.name, got, err)
	}
	if _, err := shared.podman.Run(k.t.Context(), "exec", k.container, "/connector", "probe", "live", "--config", "/etc/sluice/config/config.yaml"); err != nil {
		k.t.Error(err)
	}
	k.note("memory limit %d MiB, read-only root, no capabilities, user %s", limit>>20, user)
}
