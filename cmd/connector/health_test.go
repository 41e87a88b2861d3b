package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/laketest"
)

// listens makes the members of a lake serve probes at a free port.
func (l *lake) listens() {
	l.T.Helper()
	text := strings.ReplaceAll(read(l.T, l.Config), "health: {enabled: false}", `health: {listen: "127.0.0.1:0"}`)
	if err := os.WriteFile(l.Config, []byte(text), 0o600); err != nil {
		l.T.Fatal(err)
	}
}

// listening starts a member, waits until its health server responds, and returns the address of that server.
func listening(t *testing.T) string {
	t.Helper()
	l := newLake(t, "topics: {orders: {}}")
	l.listens()
	logger, out := newLogged(t)
	l.Logger = logger
	l.Create("orders", 2)
	l.Produce("orders", 3, 0, 1)
	l.start()
	l.Awaits("orders", laketest.UpTo(3, "orders:0", "orders:1"))
	base := address(t, out)
	l.Await("the member is ready", func() bool {
		code, _ := ask(t, http.MethodGet, base+"/health/ready")
		return code == 200
	})
	return base
}

// address returns the health address of a member from its log.
func address(t *testing.T, out *laketest.Log) string {
	t.Helper()
	address, ok := out.Lines(t, "health")[0]["address"].(string)
	if !ok {
		t.Fatal("no line says where probes are answered")
	}
	return "http://" + address
}

// ask sends a request to a URL and returns the status code and the body of the response.
func ask(t *testing.T, method, url string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// curl executes a command curl of the docs against the health server of a member, and expects a response that is not
// empty.
func curl(t *testing.T, args []string, member string) {
	t.Helper()
	url, ok := strings.CutPrefix(strings.Trim(args[len(args)-1], "'"), "http://localhost:8080/")
	if !ok || !slices.Equal(args[:len(args)-1], []string{"-s"}) {
		t.Fatalf("curl %v is not understood here", args)
	}
	code, body := ask(t, http.MethodGet, member+"/"+url)
	if code != 200 || body == "" || strings.HasPrefix(body, "{") && !json.Valid([]byte(body)) {
		t.Errorf("%s: %d %s", url, code, body)
	}
}

// healthAnswer has the parts of the response of /health that tests check.
type healthAnswer struct {
	Status     string
	Reason     string
	Ready      bool
	Components map[string]struct {
		Status  string
		Reason  string
		Details json.RawMessage
	}
	Holds []struct {
		Topic, Reason, Command string
		Partition              int32
		EndsBy                 string `json:"ends_by"`
	}
}

// askHealth requests /health and the probes of a member, and fails the test if they contradict each other.
func askHealth(t *testing.T, base string) (code int, a healthAnswer) {
	t.Helper()
	code, body := ask(t, http.MethodGet, base+"/health")
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if a.Ready != (code == 200) || a.Ready != slices.Contains([]string{"ok", "unknown", "degraded"}, a.Status) || a.Ready != (a.Reason == "") {
		t.Errorf("%d and %s", code, body)
	}
	for name, c := range a.Components {
		if c.Status != "ok" && c.Reason == "" {
			t.Errorf("%s is %s and does not say why", name, c.Status)
		}
		if bad := c.Status == "degraded" || c.Status == "down"; bad && (a.Status == "ok" || a.Status == "unknown") {
			t.Errorf("%s is %s, and all together is %s", name, c.Status, a.Status)
		}
	}
	return code, a
}

// TestHealthOfARun runs a member with all watchers. Each endpoint must respond while the member is healthy; then health
// must show a held partition with its command, and a dead letter.
func TestHealthOfARun(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {identity: {by: \"field:n\"}}, users: {bad_records: dead_letter}}")
	text := strings.ReplaceAll(read(t, l.Config), "health: {enabled: false}",
		`health: {listen: "127.0.0.1:0", lag: {every: 1s}, canary: {topic: p-canary, every: 1s}}`)
	if err := os.WriteFile(l.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	logger, out := newLogged(t)
	l.Logger = logger
	l.Create("orders", 2)
	l.Create("users", 1)
	l.Produce("orders", 1, 0, 1)
	l.start()
	l.Await("the health server listens", func() bool { return len(out.Lines(t, "health")) > 0 })
	base := address(t, out)
	if code, _ := ask(t, http.MethodGet, base+"/health/live"); code != 200 {
		t.Errorf("it is not alive before it works: %d", code)
	}
	await := func(what string, check func(healthAnswer) bool) (a healthAnswer) {
		t.Helper()
		l.Await(what, func() bool {
			_, a = askHealth(t, base)
			return check(a)
		})
		return a
	}
	well := func(a healthAnswer) bool {
		for _, c := range a.Components {
			if c.Status != "ok" {
				return false
			}
		}
		return a.Status == "ok"
	}
	a := await("all is well", well)
	for _, name := range []string{"kafka", "store", "breakers", "holds", "lag", "fingerprints", "memory", "canary", "letters", "operations_log"} {
		if _, there := a.Components[name]; !there {
			t.Errorf("no component %s", name)
		}
	}
	if details := string(a.Components["fingerprints"].Details); !strings.Contains(details, `"topic": "orders"`) || strings.Contains(details, `"entries": 0`) {
		t.Errorf("fingerprints: %s", details)
	}
	if details := string(a.Components["memory"].Details); !strings.Contains(details, `"name": "fetch"`) || strings.Contains(details, `"size": 0`) {
		t.Errorf("memory: %s", details)
	}

	for _, path := range []string{
		"/livez", "/readyz", "/health/startup", "/metrics", "/actuator", "/actuator/health", "/actuator/health/liveness", "/actuator/health/readiness",
		"/actuator/health/kafka", "/actuator/prometheus", "/actuator/metrics",
	} {
		if code, body := ask(t, http.MethodGet, base+path); code != 200 || body == "" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	everyMeter(t, base)

	bad := &kgo.Record{Topic: "orders", Partition: 1, Value: []byte(`{"n":"a"}`)}
	if err := l.Client.ProduceSync(t.Context(), bad).FirstErr(); err != nil {
		t.Fatal(err)
	}
	a = await("a partition is held", func(a healthAnswer) bool { return len(a.Holds) > 0 })
	if a.Status != "degraded" || a.Components["holds"].Status != "degraded" || a.Holds[0].Reason != "poison" || a.Holds[0].EndsBy == "" {
		t.Errorf("%+v", a)
	}
	args, ok := strings.CutPrefix(a.Holds[0].Command, "connector ")
	if !ok || args != "offsets skip orders:1@1 --reason poison --config "+l.Config {
		t.Errorf("the command is %q", a.Holds[0].Command)
	}
	l.runs(exitOK, append(strings.Fields(args), "--dry-run", "--operator", "ann")...)

	bad.Topic, bad.Partition = "users", 0
	if err := l.Client.ProduceSync(t.Context(), bad).FirstErr(); err != nil {
		t.Fatal(err)
	}
	await("there is a dead letter", func(a healthAnswer) bool { return a.Components["letters"].Status == "degraded" })
	everyMeter(t, base)
}

// TestCommandOfAPause expects the holds of a paused topic's partitions to show the command that resumes the topic.
func TestCommandOfAPause(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {}, users: {}}")
	l.listens()
	l.Create("orders", 2)
	l.Create("users", 2)
	by := []string{"--yes", "--reason", "a test", "--operator", "ann"}
	l.runs(exitOK, append([]string{"pause", "orders"}, by...)...)
	l.runs(exitOK, append([]string{"pause", "users:1"}, by...)...)
	logger, out := newLogged(t)
	l.Logger = logger
	l.start()
	l.Await("the health server listens", func() bool { return len(out.Lines(t, "health")) > 0 })
	base := address(t, out)
	commands := map[string]int{}
	l.Await("the partitions are held", func() bool {
		code, a := askHealth(t, base)
		clear(commands)
		for _, h := range a.Holds {
			commands[h.Command]++
		}
		return code == 200 && a.Status == "degraded" && len(a.Holds) == 3
	})
	if d := cmp.Diff(map[string]int{"connector resume orders --reason paused --config " + l.Config: 2, "connector resume users:1 --reason paused --config " + l.Config: 1}, commands); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for command := range commands {
		l.runs(exitOK, append(strings.Fields(command)[1:], by...)...)
	}
}

// everyMeter requests each metric that /actuator/metrics lists.
func everyMeter(t *testing.T, base string) {
	t.Helper()
	var list struct{ Names []string }
	_, body := ask(t, http.MethodGet, base+"/actuator/metrics")
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	for _, name := range list.Names {
		if code, body := ask(t, http.MethodGet, base+"/actuator/metrics/"+name); code != 200 || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	for _, name := range []string{"kafka.consumer.lag", "worker.dlq.messages", "worker.dlq.replayed"} {
		if !slices.Contains(list.Names, name) {
			t.Errorf("no metric %s among %v", name, list.Names)
		}
	}
}

// TestStart_ServersDown expects a member that cannot reach Kafka, the store or its database to be alive, to report the
// dependency that it waits for, and to show no password of an address.
func TestStart_ServersDown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := filepath.Join(dir, "url")
	if err := os.WriteFile(url, []byte("postgres://sluice:"+hush+"@127.0.0.1:1/fingerprints"), 0o600); err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(dir, "cache")
	if err := os.WriteFile(cache, []byte("redis://sluice:"+hush+"@127.0.0.1:1/0"), 0o600); err != nil {
		t.Fatal(err)
	}
	members := map[string]string{
		"kafka": `{store: postgres, url_file: ` + filepath.ToSlash(url) + `}`, "store": `{store: redis, url_file: ` + filepath.ToSlash(cache) + `}`,
	}
	for name, storage := range map[string]string{
		"kafka": `{url: "file://` + filepath.ToSlash(dir) + `/lake"}`,
		"store": `{url: "s3://bucket/lake", s3: {endpoint: "http://127.0.0.1:1", region: r, access_key: ` + hush + `-id, secret_key: ` + hush + `-key}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := filepath.Join(t.TempDir(), "config.yaml")
			text := `
pipeline: p
kafka: {brokers: ["127.0.0.1:1"], sasl: {mechanism: plain, username: sluice, password: ` + hush + `-sasl, insecure_plaintext: true}}
storage: ` + storage + `
breaker: {failures: 1}
health: {listen: "127.0.0.1:0"}
fingerprints: {store: postgres, url_file: ` + filepath.ToSlash(url) + `}
members: ` + members[name] + `
topics: {orders: {schema: "n int", identity: {by: "field:n"}}}
`
			if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			logger, out := newLogged(t)
			l := &lake{laketest.Lake{T: t, Config: cfg, Logger: logger}}
			l.start()
			l.Await("the health server listens", func() bool { return len(out.Lines(t, "health")) > 0 })
			base := address(t, out)
			var waits struct {
				Status   string
				WaitsFor []struct{ Reason, Detail string } `json:"waits_for"`
			}
			l.Await("it says what it waits for", func() bool {
				code, body := ask(t, http.MethodGet, base+"/health/startup")
				if code != 503 || json.Unmarshal([]byte(body), &waits) != nil {
					t.Fatalf("%d %s", code, body)
				}
				return len(waits.WaitsFor) > 0
			})
			if reason := waits.WaitsFor[0].Reason; waits.Status != "starting" || reason != name+"_down" || waits.WaitsFor[0].Detail == "" {
				t.Errorf("%+v", waits)
			}
			code, a := askHealth(t, base)
			if code != 503 || a.Status != "starting" || a.Components[name].Status != "down" || a.Components["holds"].Status != "down" {
				t.Errorf("%d %+v", code, a)
			}
			l.Await("it says that members are not known", func() bool {
				_, a := askHealth(t, base)
				return a.Components["members"].Status == "unknown" && strings.Contains(a.Components["members"].Reason, "127.0.0.1:1")
			})
			for path, want := range map[string]int{"/health/live": 200, "/health/ready": 503, "/actuator/health": 503, "/actuator/health/" + name: 503} {
				if code, _ := ask(t, http.MethodGet, base+path); code != want {
					t.Errorf("%s: %d", path, code)
				}
			}
			for _, path := range []string{"/health", "/health/ready", "/health/startup", "/actuator/health", "/metrics"} {
				if _, body := ask(t, http.MethodGet, base+path); strings.Contains(body, hush) {
					t.Errorf("%s shows a secret: %s", path, body)
				}
			}
			if said := out.String(); strings.Contains(said, hush) {
				t.Errorf("the log shows a secret: %s", said)
			}
		})
	}
}
