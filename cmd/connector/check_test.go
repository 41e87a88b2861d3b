package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"sluice/connector"
	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/test/certs"
)

// checkFound runs check and returns its findings as lines "status area subject: text".
func checkFound(t *testing.T, wantCode int, cfg string, args ...string) (lines []string, all []admin.Finding) {
	t.Helper()
	timeout := "5s"
	// With these exit codes all servers respond. The long time limit is for slow machines.
	if wantCode == exitOK || wantCode == exitFound {
		timeout = "5m"
	}
	code, out, errs := connectorRun(t, append([]string{"check", "--config", cfg, "-o", "json", "--timeout", timeout}, args...)...)
	var report struct {
		Findings []admin.Finding `json:"findings"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || errs != "" {
		t.Fatalf("exit code %d: %v\n%s%s", code, err, out, errs)
	}
	dir := filepath.Dir(cfg)
	for _, f := range report.Findings {
		subject := strings.ReplaceAll(f.Subject, dir, "")
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", f.Status, f.Area, subject, strings.ReplaceAll(f.Text, dir, "")))
	}
	if code != wantCode {
		t.Errorf("exit code %d, want %d:\n%s", code, wantCode, strings.Join(lines, "\n"))
	}
	return lines, report.Findings
}

// hasLine fails the test unless a line begins with begin and contains a text.
func hasLine(t *testing.T, lines []string, begin, contains string) {
	t.Helper()
	for _, l := range lines {
		if strings.HasPrefix(l, begin) && strings.Contains(l, contains) {
			return
		}
	}
	t.Errorf("nothing begins with %q and says %q:\n%s", begin, contains, strings.Join(lines, "\n"))
}

// TestCheck: for a correct pipeline, check finds no problem, neither before the first record nor later. It warns about
// a table without the column for topic ids. It must not create the directory of the lake.
func TestCheck(t *testing.T) {
	b := newBroker(t)
	w := newTable(t, b.topic, b.addresses...)
	at := b.addresses[0]
	lines, _ := checkFound(t, 0, w.config)
	want := []string{
		"ok configuration /config.yaml: pipeline p, group p, 1 topic and 0 patterns",
		"ok broker " + at + ": cluster " + b.topic.Cluster + ", plaintext",
		"ok broker " + at + " (0): read by Fetch v13",
		"warning storage file:///lake: the directory does not exist; connector run creates it",
		"ok table file:///lake/orders: not there yet",
		"ok topic orders: 2 partitions, kept for 168h; rows go to table orders",
		"ok position orders: not read yet, start: earliest",
		"ok group p: no members",
		"ok operations log p: 0 entries",
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Errorf("before the first record (-want +got):\n%s", d)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(w.config), "lake")); err == nil {
		t.Error("check made the directory")
	}

	w.create().append(0, 0, 3, 3, 0, 1, 2)
	lines, _ = checkFound(t, 0, w.config)
	want[3] = "ok storage file:///lake: puts if absent are exclusive; can be read, written and listed"
	want[4] = "ok table file:///lake/orders: version 2, has the columns of the schema and can be written"
	want[6] = "ok position orders: 2 partitions in the table, 7 records behind"
	older := slices.Insert(slices.Clone(want), 5, // the table is older than the column
		"warning table file:///lake/orders: the table has no column _kafka_topic_id: once the topic is created again, earlier dead letters cannot be replayed")
	if d := cmp.Diff(older, lines); d != "" {
		t.Errorf("at work (-want +got):\n%s", d)
	}
	rewrite(t, w.config, "topics: {orders: {}}", "topics: {orders: {metadata_columns: [topic, partition, offset, timestamp], table_properties: {owner: me}}}")
	differs := slices.Insert(slices.Clone(want), 5,
		`warning table file:///lake/orders: properties differ: owner is not set, "me" in table_properties`)
	if lines, _ = checkFound(t, 0, w.config); !slices.Equal(differs, lines) {
		t.Errorf("other properties (-want +got):\n%s", cmp.Diff(differs, lines))
	}
	rewrite(t, w.config, "], table_properties: {owner: me}}}", "]}}")
	if lines, _ = checkFound(t, 0, w.config); !slices.Equal(want, lines) {
		t.Errorf("without the column (-want +got):\n%s", cmp.Diff(want, lines))
	}
	expect(t, 0, "2 partitions in the table, 7 records behind\n", "", "check", "--config", w.config)
}

// TestCheck_MeantTopic expects the hint about a topic that does not exist to name similar topics of the cluster.
func TestCheck_MeantTopic(t *testing.T) {
	b := newBroker(t)
	for name, want := range map[string]string{
		"ordres":   "did you mean orders? Correct the name in topics, or create the topic",
		"Orders":   "did you mean orders? Correct the name in topics, or create the topic",
		"shipment": "create the topic, or correct its name in topics",
	} {
		w := newTable(t, b.topic, b.addresses...)
		rewrite(t, w.config, "topics: {orders: {}}", "topics: {"+name+": {}}")
		_, all := checkFound(t, 1, w.config)
		i := slices.IndexFunc(all, func(f admin.Finding) bool { return f.Area == "topic" && f.Subject == name })
		if i < 0 || all[i].Hint != want {
			t.Errorf("%s: %+v", name, all)
		}
	}
	w := newTable(t, b.topic, b.addresses...)
	rewrite(t, w.config, "topics: {orders: {}}", "topics: {orders: {}, ordres: {}}") // now orders has an entry as well, so ordres is not a misspelled orders
	if _, all := checkFound(t, 1, w.config); slices.ContainsFunc(all, func(f admin.Finding) bool { return strings.Contains(f.Hint, "did you mean") }) {
		t.Errorf("%+v", all)
	}
}

// TestCheck_NullableInTable expects a warning if a column is NOT NULL in the configuration but nullable in the table,
// because the table decides.
func TestCheck_NullableInTable(t *testing.T) {
	b := newBroker(t)
	w := newTable(t, b.topic, b.addresses...).create()
	rewrite(t, w.config, "n int", "n int not null")
	lines, _ := checkFound(t, 0, w.config)
	hasLine(t, lines, "ok table ", "version ")
	hasLine(t, lines, "warning table file:///lake/orders: ", "not null in schema, but nullable in the table: n. ")
}

// TestCheck_Paused expects the hint about a pause to have the command that ends it, ready to be pasted.
func TestCheck_Paused(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	for target, want := range map[string]string{"orders:1": "orders:1", "orders": "orders", "--all": "--all"} {
		l.runs(0, "pause", target, "--yes", "--reason", "a test", "--operator", "ann")
		_, all := checkFound(t, 0, l.Config)
		i := slices.IndexFunc(all, func(f admin.Finding) bool { return f.Area == "operations log" && f.Status == admin.StatusWarning })
		command := "connector resume " + want + " --reason paused --config " + l.Config
		if i < 0 || all[i].Hint != "end the pause: "+command {
			t.Fatalf("%s: %+v", target, all)
		}
		l.runs(0, append(strings.Fields(command)[1:], "--yes")...)
	}
}

// TestCheckPrints: the text output of check has a line for each finding, in columns. The hint of a finding is on the
// next line. Characters that control a terminal are escaped.
func TestCheckPrints(t *testing.T) {
	findings := []admin.Finding{
		{Status: admin.StatusOK, Area: "broker", Subject: "a:9092", Text: "cluster c, plaintext"},
		{Status: admin.StatusFailed, Area: "broker", Subject: "b:9092", Text: "no answer\x1b[2J", Hint: "look"},
	}
	var b strings.Builder
	if err := printFindings(&b, false, findings); err != nil {
		t.Fatal(err)
	}
	want := "ok      broker  a:9092  cluster c, plaintext\n" +
		"failed  broker  b:9092  no answer\\x1b[2J\n" +
		"                        to do: look\n"
	if d := cmp.Diff(want, b.String()); d != "" || fail.Of(result(findings)) != fail.KindDependency {
		t.Errorf("%v (-want +got):\n%s", result(findings), d)
	}
}

// TestCheckFinds expects a fault that an operator must fix to be a problem with a hint, and exit code 1.
func TestCheckFinds(t *testing.T) {
	b := newBroker(t)
	for _, tt := range []struct {
		name        string
		prepare     func(t *testing.T, w *written)
		begin, text string
	}{
		{"a group offset and no table", func(*testing.T, *written) { b.commit("orders", 1, 4) }, "problem position orders: ", "2 partitions held unknown_history, first: the table has no position"},
		{"another topic", func(t *testing.T, w *written) {
			t.Helper()
			w.topic.ID[0]++
			w.create()
		}, "problem position orders: ", "topic_recreated"},
		{"a schema that does not fit the table", func(t *testing.T, w *written) {
			t.Helper()
			w.create()
			rewrite(t, w.config, "n int", "n int, more string not null")
		}, "problem table file:///lake/orders: ", "schema_conflict: "},
		{"no such topic", func(t *testing.T, w *written) {
			t.Helper()
			rewrite(t, w.config, "topics: {orders: {}}", "topics: {order: {}}")
		}, "problem topic order: ", "has no topic order"},
		{"a pattern that nothing matches", func(t *testing.T, w *written) {
			t.Helper()
			rewrite(t, w.config, "topics: {orders: {}}", `topics: {some: {pattern: "nothing-.*", deny: []}}`)
		}, "problem topic patterns: ", "no topic matches"},
		{"a damaged operations log", func(t *testing.T, w *written) {
			t.Helper()
			w.create()
			dir := filepath.Join(filepath.Dir(w.dir), "_sluice", "p", "ops")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			certs.Write(t, dir, fmt.Sprintf("%020d.json", 1), []byte("{}"))
		}, "problem operations log p: ", "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newTable(t, b.topic, b.addresses...)
			tt.prepare(t, w)
			lines, all := checkFound(t, 1, w.config)
			hasLine(t, lines, tt.begin, tt.text)
			for _, f := range all {
				if f.Status == admin.StatusProblem && f.Hint == "" {
					t.Errorf("a problem without a hint: %+v", f)
				}
			}
		})
	}
}

// rewrite replaces a text in a file, and fails the test if the file does not have it.
func rewrite(t *testing.T, path, from, to string) {
	t.Helper()
	text := read(t, path)
	if !strings.Contains(text, from) {
		t.Fatalf("no %q in\n%s", from, text)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, from, to)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCheckRetention expects warnings about a topic whose records Kafka deletes within a weekend, and about its
// compaction.
func TestCheckRetention(t *testing.T) {
	b := newBroker(t)
	admin := kadm.NewClient(b.client)
	set := func(name, value string) kadm.AlterConfig {
		return kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value}
	}
	_, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{
		set("retention.ms", "3600000"), set("retention.bytes", "1048576"), set("cleanup.policy", "compact,delete"),
	}, "orders")
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := checkFound(t, 0, newTable(t, b.topic, b.addresses...).config)
	hasLine(t, lines, "ok topic orders: ", "kept for 1h or 1MiB per partition")
	hasLine(t, lines, "warning topic orders: ", "records are lost when the pipeline stands for longer than 1h")
	hasLine(t, lines, "warning topic orders: ", "compacted")
}

// TestCheckFails expects check to name a dependency that fails, to skip the checks that need it, and to run the others.
func TestCheckFails(t *testing.T) {
	t.Run("no broker", func(t *testing.T) {
		w := newTable(t, noTopic).create()
		lines, all := checkFound(t, 3, w.config)
		hasLine(t, lines, "failed broker 127.0.0.1:1: ", "cannot be reached")
		hasLine(t, lines, "ok storage ", "")
		hasLine(t, lines, "ok table ", "version 1")
		hasLine(t, lines, "skipped topic orders: ", "")
		hasLine(t, lines, "skipped group p: ", "")
		hasLine(t, lines, "ok operations log p: ", "")
		if all[1].Hint == "" {
			t.Error("no hint")
		}
	})
	t.Run("one broker of two", func(t *testing.T) {
		b := newBroker(t)
		w := newTable(t, b.topic, "127.0.0.1:1", b.addresses[0])
		lines, _ := checkFound(t, 3, w.config)
		hasLine(t, lines, "failed broker 127.0.0.1:1: ", "cannot be reached")
		hasLine(t, lines, "ok topic orders: ", "")
	})
	t.Run("the store is a file", func(t *testing.T) {
		b := newBroker(t)
		w := newTable(t, b.topic, b.addresses...)
		certs.Write(t, filepath.Dir(w.config), "lake", nil)
		lines, _ := checkFound(t, 3, w.config)
		hasLine(t, lines, "failed storage file:///lake: ", "")
		hasLine(t, lines, "skipped table file:///lake/orders: ", "")
		hasLine(t, lines, "ok topic orders: ", "")
		hasLine(t, lines, "skipped position orders: ", "")
		hasLine(t, lines, "skipped operations log p: ", "")
	})
}

// TestCheckConfiguration expects check to end at an invalid configuration. After a warning about the configuration, the
// other checks must still run.
func TestCheckConfiguration(t *testing.T) {
	path := write(t, "pipeline: p\nkafka: {brokers: [a]}\nstorage: {url: \"file:///nowhere\"}\ndefaults: {schema: a int}\ntopics: {orders: {}}\n")
	lines, _ := checkFound(t, 2, path)
	if d := cmp.Diff([]string{`problem configuration /config.yaml:2: kafka.brokers: "a" has no port: write a:9092`}, lines); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	b := newBroker(t)
	w := newTable(t, b.topic, b.addresses...)
	rewrite(t, w.config, "session: 10s", "session: 6s")
	lines, _ = checkFound(t, 0, w.config)
	hasLine(t, lines, "warning configuration /config.yaml:2: kafka.session: ", "")
}

// TestCheckSecurity: with correct settings of TLS and SASL, check reports the broker as ok and shows the settings. With
// an unknown authority, without TLS or without SASL, it reports the broker as failed and says which side refuses what.
func TestCheckSecurity(t *testing.T) {
	dir := t.TempDir()
	ca := certs.NewCA(t, "ours")
	strange := certs.Write(t, dir, "strange.pem", certs.NewCA(t, "theirs").PEM)
	trusted := certs.Write(t, dir, "ca.pem", ca.PEM)
	pair := ca.Issue(t, certs.Leaf{Hosts: []string{"127.0.0.1"}, To: time.Now().Add(48 * time.Hour)})
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.TLS(serverTLS(t, pair)),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "sluice", "right"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	at := cluster.ListenAddrs()[0]
	client, err := kgo.NewClient(kgo.SeedBrokers(at), kgo.DialTLSConfig(&tls.Config{RootCAs: ca.Pool()}),
		kgo.SASL(scram.Auth{User: "sluice", Pass: "right"}.AsSha512Mechanism()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	(&broker{t: t, client: client}).commit("orders", 0, 0) // unlike Kafka, this broker denies requests about a group that does not exist
	cfg := func(tls, sasl string) string {
		w := newTable(t, connector.Topic{}, at)
		rewrite(t, w.config, "session: 10s}", "session: 10s, tls: {"+tls+"}, sasl: {"+sasl+"}}")
		return w.config
	}
	right := "mechanism: scram-sha-512, username: sluice, password_file: " + certs.Write(t, dir, "password", []byte("right"))

	lines, _ := checkFound(t, 1, cfg("ca_file: "+trusted, right))
	hasLine(t, lines, "ok broker "+at+": ", "TLS 1.3, scram-sha-512 as sluice")
	hasLine(t, lines, "warning broker "+at+": ", "the broker's certificate ends on ")
	hasLine(t, lines, "ok topic orders: ", "")
	hasLine(t, lines, "problem position orders: ", "unknown_history") // the committed offset that commit made is the cause

	lines, all := checkFound(t, 3, cfg("ca_file: "+strange, right))
	hasLine(t, lines, "failed broker "+at+": ", "signed by an authority that we do not trust")
	if !strings.Contains(all[1].Hint, "kafka.tls.ca_file") {
		t.Errorf("the hint: %q", all[1].Hint)
	}
	lines, _ = checkFound(t, 3, cfg("enabled: false", ""))
	hasLine(t, lines, "failed broker "+at+": ", "speaks TLS and we do not")
	lines, _ = checkFound(t, 3, cfg("ca_file: "+trusted, ""))
	hasLine(t, lines, "failed broker "+at+": ", "demands SASL")
}

// TestCheckAdvertised has a broker that advertises an address at which nothing listens. check must report that address
// as failed, with a hint about advertised.listeners.
func TestCheckAdvertised(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		resp.ClusterID = new("c")
		resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 7, Host: "127.0.0.1", Port: 1}}
		return resp, nil, true
	})
	lines, all := checkFound(t, 3, newTable(t, noTopic, cluster.ListenAddrs()[0]).config)
	hasLine(t, lines, "ok broker "+cluster.ListenAddrs()[0]+": ", "cluster c")
	hasLine(t, lines, "failed broker 127.0.0.1:1 (7): ", "cannot be reached")
	for _, f := range all {
		if strings.HasSuffix(f.Subject, "(7)") && !strings.Contains(f.Hint, "advertised.listeners") {
			t.Errorf("the hint: %q", f.Hint)
		}
	}
}

// serverTLS returns a broker's TLS configuration with this certificate.
func serverTLS(t *testing.T, p certs.Pair) *tls.Config {
	t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{p.TLS(t)}}
}

// TestCheck_Mirror expects check to warn if the database of the copies of the operations log does not respond: nothing
// else needs it.
func TestCheck_Mirror(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 1)
	file := filepath.Join(l.Dir, "mirror")
	if err := os.WriteFile(file, []byte("postgres://u:s3cr3t@127.0.0.1:1/d?sslmode=disable"), 0o600); err != nil {
		t.Fatal(err)
	}
	l = l.as(`ops: {listen: ""}`, `ops: {listen: "", mirror_url_file: "`+filepath.ToSlash(file)+`"}`)
	lines, _ := checkFound(t, exitDependency, l.Config) // the group has no offsets yet
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "warning audit ops.mirror_url_file: ") })
	if i < 0 || !strings.Contains(lines[i], "127.0.0.1:1") || strings.Contains(fmt.Sprint(lines), "s3cr3t") {
		t.Errorf("%q", lines)
	}
}
