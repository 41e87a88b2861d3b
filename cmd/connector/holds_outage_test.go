package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/internal/laketest"
)

// refusing is an address at which nothing listens, so connections are refused.
const refusing = "127.0.0.1:1"

// silentServer returns the address of a server that accepts connections and never responds, like a stopped process.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // without a call of Accept, the kernel accepts connections and nothing responds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// slowServer returns the address of a store that responds late, with an error that it is busy.
func slowServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(50 * time.Millisecond)
		http.Error(w, "<Error><Code>SlowDown</Code></Error>", http.StatusServiceUnavailable)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestHolds_Outages makes one system silent, slow or unreachable. The command holds must end in time, show the holds
// that the other systems know, and name the system whose holds are missing.
func TestHolds_Outages(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*testing.T) string{
		"silent": silentServer, "refusing": func(*testing.T) string { return refusing }, "slow": slowServer,
	}
	kafkaUnknown := "Kafka did not respond within 6s, and so it is not known whether the positions are in the log of the topics orders: "
	storeUnknown := []string{
		"the store did not respond within 6s, and so what is paused is not known: ",
		"the store did not respond within 6s, and so the positions are not known of the tables orders: ",
	}
	for _, dependency := range []string{"kafka", "s3", "redis", "postgres"} {
		for way, address := range ways {
			t.Run(dependency+" "+way, func(t *testing.T) {
				t.Parallel()
				l := newOrders(t, 5)
				l.deleteRecords("orders", 0, 5)
				l.Produce("orders", 2, 0)
				l.deleteRecords("orders", 0, 6) // now the position is before the start of the log, which table and Kafka show
				lost := "orders:0 behind_log_start at 5 from table and Kafka: connector offsets accept-gap orders:0 --reason behind_log_start"
				var unknown []string
				switch dependency {
				case "kafka":
					if way == "slow" {
						l.Broker.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
							l.Broker.KeepControl()
							l.Broker.SleepControl(func() { time.Sleep(50 * time.Millisecond) })
							return nil, nil, false
						})
						break
					}
					rewrite(t, l.Config, l.Broker.ListenAddrs()[0], address(t))
					lost, unknown = "", []string{kafkaUnknown}
				case "s3":
					rewrite(t, l.Config, fmt.Sprintf("{url: \"file://%s/lake\"}", filepath.ToSlash(l.Dir)),
						fmt.Sprintf("{url: s3://bucket/lake, s3: {endpoint: \"http://%s\", region: r, access_key: a, secret_key: b}}", address(t)))
					lost, unknown = "", storeUnknown
				case "redis", "postgres":
					file := filepath.Join(l.Dir, "url")
					url := map[string]string{"redis": "redis://" + address(t), "postgres": "postgres://u:p@" + address(t) + "/d"}[dependency]
					if err := os.WriteFile(file, []byte(url), 0o600); err != nil {
						t.Fatal(err)
					}
					rewrite(t, l.Config, "pipeline: p\n", fmt.Sprintf("pipeline: p\nmembers: {store: %s, url_file: %s}\n", dependency, file))
					unknown = []string{"the store of registrations: "}
				}
				member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = fmt.Fprint(w, `{"pipeline":"p","holds":[{"topic":"orders","partition":1,"reason":"kafka_down","detail":"no route","since":"2026-01-31T09:00:00Z","offset":5}]}`)
				}))
				defer member.Close()

				within := "12s" // the command gives each system half of this time
				if dependency == "redis" || dependency == "postgres" || unknown == nil {
					within = laketest.HangGuard.String() // every system responds, even if the machine is slow
				}
				want := []string{"orders:1 kafka_down at 5 from " + member.URL + ": "}
				if lost != "" {
					want = append([]string{lost}, want...)
				}
				l.wantHolds(1, want, "--member", member.URL, "--timeout", within)
				out, errs := l.runs(1, "holds", "--member", member.URL, "--timeout", within)
				for _, text := range unknown {
					if !strings.Contains(errs, text) {
						t.Errorf("no %q in\n%s", text, errs)
					}
				}
				if strings.Contains(out, "not known") || (unknown == nil) != (errs == "") {
					t.Errorf("%s\n%s", out, errs)
				}
			})
		}
	}
}

// TestHolds_NothingKnown expects holds not to say that nothing is held if a system does not respond.
func TestHolds_NothingKnown(t *testing.T) {
	t.Parallel()
	w := newTable(t, noTopic).create()
	rewrite(t, w.config, "topics: {orders: {}}", "topics: {orders: {}}\nhealth: {listen: \"127.0.0.1:1\"}")
	code, out, errs := connectorRun(t, "holds", "--config", w.config, "--timeout", "3s")
	if code != exitDependency || !strings.Contains(errs, "Kafka did not respond within 1.5s") || !strings.Contains(errs, "topic orders: ") ||
		out != "unknown whether something is held: see the systems that did not respond\n" {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	silent := silentServer(t)
	code, _, errs = connectorRun(t, "holds", "--config", w.config, "--timeout", "3s", "--member", "http://"+silent)
	if want := "the member at http://" + silent + " did not respond within 1.5s"; code != exitDependency || !strings.Contains(errs, want) {
		t.Errorf("exit code %d, no %q in\n%s", code, want, errs)
	}
	// Now the member's configured address accepts connections and never responds.
	rewrite(t, w.config, "127.0.0.1:1\"}", silent+"\"}")
	code, _, errs = connectorRun(t, "holds", "--config", w.config, "--timeout", "3s")
	if want := "the member at http://" + silent + " did not respond within 1.5s"; code != exitDependency || !strings.Contains(errs, want) {
		t.Errorf("exit code %d, no %q in\n%s", code, want, errs)
	}
}

// TestHolds_TwoOutages expects that an outage of the store does not hide an outage of Kafka.
func TestHolds_TwoOutages(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 1)
	rewrite(t, l.Config, l.Broker.ListenAddrs()[0], silentServer(t))
	rewrite(t, l.Config, fmt.Sprintf("{url: \"file://%s/lake\"}", filepath.ToSlash(l.Dir)),
		fmt.Sprintf("{url: s3://bucket/lake, s3: {endpoint: \"http://%s\", region: r, access_key: a, secret_key: b}}", silentServer(t)))
	_, errs := l.runs(exitDependency, "holds", "--timeout", "4s")
	for _, want := range []string{"the store did not respond within 2s", "Kafka did not respond within 2s, and so it is not known whether positions are in their logs: "} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
}

// TestHolds_FailingDependency: requests to a dependency fail, but its breaker is still closed, so that no claim is held
// for it. holds must name the dependency, unless a hold already explains its failure.
func TestHolds_FailingDependency(t *testing.T) {
	t.Parallel()
	const failing = `"dependencies":[
		{"name":"postgres","open":false,"failing_since":"2026-01-31T09:00:00Z","error":"dial: connection refused"},
		{"name":"store","table":"orders","open":false,"failing_since":"2026-01-31T09:00:05Z","error":"503\u001b[2J"},
		{"name":"store","table":"orders","open":false,"failing_since":"2026-01-31T09:00:06Z","error":"twice"},
		{"name":"kafka","open":false}]`
	for name, c := range map[string]struct {
		holds string
		code  int
		errs  []string
	}{
		"no hold yet": {`[]`, exitDependency, []string{
			": postgres has failed since 2026-01-31T09:00:00Z: dial: connection refused",
			": store of table orders has failed since 2026-01-31T09:00:05Z: 503",
		}},
		"held": {`[{"topic":"orders","partition":0,"reason":"store_down","detail":"503","since":"2026-01-31T09:00:00Z","offset":5}]`, exitFound, []string{": postgres has failed since "}},
		"all held": {`[{"topic":"orders","partition":0,"reason":"store_denied","detail":"403","since":"2026-01-31T09:00:00Z","offset":5},
			{"topic":"orders","partition":1,"reason":"fingerprints_unavailable","detail":"x","since":"2026-01-31T09:00:00Z","offset":5}]`, exitFound, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newOrders(t, 1)
			member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"pipeline":"p","holds":%s,%s}`, c.holds, failing)
			}))
			defer member.Close()
			out, errs := l.runs(c.code, "holds", "--member", member.URL)
			for _, text := range c.errs {
				if !strings.Contains(errs, "the member at "+member.URL+text) {
					t.Errorf("no %q in\n%s", text, errs)
				}
			}
			if (errs == "") != (c.errs == nil) || strings.Contains(out, "nothing is held") || strings.Contains(errs, "kafka") || strings.Contains(errs, "\x1b") ||
				strings.Count(errs, "has failed since") != len(c.errs) {
				t.Errorf("%s\n%s", out, errs)
			}
		})
	}
}
