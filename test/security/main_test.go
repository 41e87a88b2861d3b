//go:build lab

// Package security runs the connector's binary against real brokers that require TLS and authentication. It covers each
// way to connect, with right and wrong settings. With right settings records must arrive in the table. With wrong
// settings the commands and a running connector must name the fault.
//
// Every test runs on the newest Kafka and on the last one before 4.0. The tables are on the local disk.
package security

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/test/certs"
	"sluice/test/gen"
	"sluice/test/lab"
)

const (
	user     = "sluice"
	password = "right-7461"
	records  = 500
	// patience is how long a test waits for an expected event. It does not measure speed.
	patience = 2 * time.Minute
)

// These are the additional listeners. All their certificates are for 127.0.0.1, except that of OTHER.
const (
	onTLS     = "TLS"
	onMutual  = "MTLS"
	onExpired = "EXPIRED" // the broker's certificate has expired
	onOther   = "OTHER"   // the broker's certificate is for another host
	onSASL    = "SASLTLS" // all SASL mechanisms
	onScram   = "SCRAM"   // only SCRAM-SHA-512, with sessions of two seconds
	onBearer  = "BEARER"  // only OAUTHBEARER, with sessions of two seconds
)

// securedBroker is one broker, with the certificates and credentials of its clients.
type securedBroker struct {
	binary string
	kafka  *lab.Kafka
	dir    string

	ca, strangeCA        string
	cert, key            string
	expiredCert, itsKey  string
	strangerCert, herKey string
	token, staleToken    string
}

// TestSecurity runs all tests against one broker of each version.
func TestSecurity(t *testing.T) {
	for _, version := range []string{lab.KafkaNewest, lab.KafkaOlder} {
		t.Run(version, func(t *testing.T) {
			w := newSecuredBroker(t, version)
			w.matrix(t)
			t.Run("sessions of SCRAM end", func(t *testing.T) {
				t.Parallel()
				w.sessionsOfScram(t)
			})
			t.Run("sessions of tokens end", func(t *testing.T) {
				t.Parallel()
				w.sessionsOfTokens(t)
			})
			t.Run("certificate renewed", func(t *testing.T) {
				t.Parallel()
				w.renewed(t)
			})
		})
	}
}

func newSecuredBroker(t *testing.T, version string) *securedBroker {
	t.Helper()
	w := &securedBroker{dir: t.TempDir(), binary: build(t)}
	if err := os.Mkdir(filepath.Join(w.dir, "kafka"), 0o755); err != nil {
		t.Fatal(err)
	}
	ca, stranger := certs.NewCA(t, "lab authority"), certs.NewCA(t, "another authority")
	w.ca = certs.Write(t, w.dir, "ca.pem", ca.PEM)
	w.strangeCA = certs.Write(t, w.dir, "strange.pem", stranger.PEM)
	pair := func(name string, by *certs.CA, l certs.Leaf) (cert, key string) {
		l.Name = name
		p := by.Issue(t, l)
		certs.Write(t, w.dir, name+"-both.pem", append(p.Key, p.Cert...)) // Kafka reads key and certificate from one file
		return certs.Write(t, w.dir, name+".pem", p.Cert), certs.Write(t, w.dir, name+"-key.pem", p.Key)
	}
	past := time.Now().Add(-time.Minute)
	w.cert, w.key = pair("client", ca, certs.Leaf{})
	w.expiredCert, w.itsKey = pair("old-client", ca, certs.Leaf{To: past})
	w.strangerCert, w.herKey = pair("stranger", stranger, certs.Leaf{})
	here := []string{"127.0.0.1"}
	pair("broker", ca, certs.Leaf{Hosts: here})
	pair("old-broker", ca, certs.Leaf{Hosts: here, To: past})
	pair("other-broker", ca, certs.Leaf{Hosts: []string{"kafka.example"}})
	w.token = certs.Write(t, w.dir, "token", []byte(jws(time.Now().Add(time.Hour))))
	w.staleToken = certs.Write(t, w.dir, "stale-token", []byte(jws(past)))

	tls := func(name string, more map[string]string) map[string]string {
		all := map[string]string{"ssl.keystore.type": "PEM", "ssl.keystore.location": filepath.Join(w.dir, name+"-both.pem")}
		maps.Copy(all, more)
		return all
	}
	const modules = "org.apache.kafka.common.security."
	scram := modules + "scram.ScramLoginModule required;"
	bearer := modules + "oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"" + user + "\";"
	var err error
	w.kafka, err = lab.StartKafka(t.Context(), lab.KafkaOptions{
		Dir: filepath.Join(w.dir, "kafka"), Version: version,
		Scram: []string{
			"SCRAM-SHA-256=[name=" + user + ",password=" + password + "]",
			"SCRAM-SHA-512=[name=" + user + ",password=" + password + "]",
		},
		Listeners: []lab.Listener{
			{Name: onTLS, Protocol: "SSL", Settings: tls("broker", nil)},
			{Name: onMutual, Protocol: "SSL", Settings: tls("broker", map[string]string{
				"ssl.client.auth": "required", "ssl.truststore.type": "PEM", "ssl.truststore.location": w.ca,
			})},
			{Name: onExpired, Protocol: "SSL", Settings: tls("old-broker", nil)},
			{Name: onOther, Protocol: "SSL", Settings: tls("other-broker", nil)},
			{Name: onSASL, Protocol: "SASL_SSL", Settings: tls("broker", map[string]string{
				"sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
				"plain.sasl.jaas.config":         modules + "plain.PlainLoginModule required user_" + user + "=\"" + password + "\";",
				"scram-sha-256.sasl.jaas.config": scram,
				"scram-sha-512.sasl.jaas.config": scram,
				"oauthbearer.sasl.jaas.config":   bearer,
			})},
			{Name: onScram, Protocol: "SASL_SSL", Settings: tls("broker", map[string]string{
				"sasl.enabled.mechanisms": "SCRAM-SHA-512", "scram-sha-512.sasl.jaas.config": scram,
				"connections.max.reauth.ms": "2000",
			})},
			{Name: onBearer, Protocol: "SASL_SSL", Settings: tls("broker", map[string]string{
				"sasl.enabled.mechanisms": "OAUTHBEARER", "oauthbearer.sasl.jaas.config": bearer,
				"connections.max.reauth.ms": "2000",
			})},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.kafka.Kill() })
	return w
}

// build compiles the connector.
func build(t *testing.T) string {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "connector")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/connector")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the connector: %v: %s", err, out)
	}
	return binary
}

// topic creates a topic with records in it.
func (w *securedBroker) topic(t *testing.T) string {
	t.Helper()
	name := strings.NewReplacer("/", "-", "_", "-", ",", "", ":", "").Replace(strings.ToLower(t.Name()))
	if err := w.kafka.CreateTopic(t.Context(), name, 2, nil); err != nil {
		t.Fatal(err)
	}
	w.produce(t, name, 0, records)
	return name
}

func (w *securedBroker) produce(t *testing.T, topic string, from, n int64) {
	t.Helper()
	p := gen.Producer{Brokers: []string{w.kafka.Addr}, Topic: topic, Orders: gen.Orders{Seed: 1, Span: 1000}, From: from, Records: n, Codec: "none"}
	if err := p.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// config writes a configuration and returns its path and the address of the member's health server. kafka has the keys
// below kafka.
func (w *securedBroker) config(t *testing.T, topic, address, kafka string) (path, listen string) {
	t.Helper()
	listen, err := lab.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := fmt.Sprintf(`
pipeline: p
log: {format: json}
kafka:
  brokers: [%s]
  group: %s
  session: 6s
  %s
storage: {url: "file://%s/tables"}
retry: {initial: 100ms, max: 1s}
breaker: {open_for: 1s, successes: 1}
defaults:
  schema: %q
  commit: {every: 500ms}
topics: {%s: {}}
health: {listen: %q}
ops: {listen: ""}
shutdown: {drain: 5s}
`, address, topic, strings.ReplaceAll(kafka, "\n", "\n  "), dir, gen.DDL, topic, listen)
	return certs.Write(t, dir, "config.yaml", []byte(text)), listen
}

// command runs a command of the binary and returns its exit code and output.
func (w *securedBroker) command(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.binary, args...)
	cmd.Env = append(os.Environ(), "PASSWORD="+password)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
