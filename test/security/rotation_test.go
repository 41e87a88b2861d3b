//go:build lab

package security

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/certs"
	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// rotation is a member on a broker with mTLS and SCRAM, an S3 server with users, and an ops API with TLS. Its secrets are
// files of one folder.
type rotation struct {
	t      *testing.T
	kafka  *lab.Kafka
	minio  *lab.MinIO
	bucket *lab.Bucket
	log    *tablelog.Log
	member *member
	broker string // the folder with the broker's files
	dir    string // the member's folder of secrets
	files  map[string]string
	round  int
	api    string // the URL of the ops API

	mu   sync.Mutex
	keys string // the access key of the newest request to the store
}

// TestRotation replaces every kind of secret of a running member while records arrive: the keys of S3, the password of
// SCRAM, the certificates of both sides of mTLS with their authority, and tokens and certificate of the ops API. The
// process must stay the same, every old secret must stop working, and the table must have each record once.
func TestRotation(t *testing.T) {
	r := &rotation{t: t, broker: t.TempDir(), dir: filepath.Join(t.TempDir(), "secrets"), files: map[string]string{}}
	firstCA, secondCA := certs.NewCA(t, "first authority"), certs.NewCA(t, "second authority")
	here := []string{"127.0.0.1"}
	r.startServers(firstCA.Issue(t, certs.Leaf{Name: "broker", Hosts: here}), append(firstCA.PEM, secondCA.PEM...))
	client := firstCA.Issue(t, certs.Leaf{Name: "client"})
	site := firstCA.Issue(t, certs.Leaf{Name: "first", Hosts: here})
	r.write(map[string]string{
		"access": "first-access", "secret": "first-secret-1", "password": "first-password",
		"ca.pem": string(firstCA.PEM), "client.pem": string(client.Cert), "client-key.pem": string(client.Key),
		"tokens": tokenLine("ada", "first-token"), "web.yaml": "tls_server_config: {cert_file: site.pem, key_file: site-key.pem}\n",
		"site.pem": string(site.Cert), "site-key.pem": string(site.Key),
	})
	const topic = "rotation"
	if err := r.kafka.CreateTopic(t.Context(), topic, 4, nil); err != nil {
		t.Fatal(err)
	}
	config := r.start(topic)
	ledger, end := r.stream(topic)
	r.progress()

	r.s3Keys()
	r.password()
	r.certificates(secondCA)
	r.apiSecrets(firstCA, secondCA)

	end()
	r.awaitRows(ledger.Len())
	text, err := os.ReadFile(r.member.Log)
	if starts := strings.Count(string(text), `"msg":"starting"`); err != nil || starts != 1 || !r.member.Running() {
		t.Errorf("%d starts of the member (%v), running %t", starts, err, r.member.Running())
	}
	if err := r.member.Stop(30 * time.Second); err != nil || r.member.ExitCode() != 0 {
		t.Errorf("drain: %v, exit code %d", err, r.member.ExitCode())
	}
	r.check(ledger, config)
}

// startServers starts the broker and the S3 server with its first user.
func (r *rotation) startServers(broker certs.Pair, authorities []byte) {
	r.t.Helper()
	ctx := r.t.Context()
	r.brokerFiles(broker, authorities)
	for _, name := range []string{"kafka", "minio"} {
		if err := os.Mkdir(filepath.Join(r.broker, name), 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	var err error
	r.kafka, err = lab.StartKafka(ctx, lab.KafkaOptions{
		Dir: filepath.Join(r.broker, "kafka"), Scram: []string{"SCRAM-SHA-512=[name=" + user + ",password=first-password]"},
		Listeners: []lab.Listener{{Name: onScram, Protocol: "SASL_SSL", Settings: map[string]string{
			"ssl.keystore.type": "PEM", "ssl.keystore.location": filepath.Join(r.broker, "both.pem"),
			"ssl.truststore.type": "PEM", "ssl.truststore.location": filepath.Join(r.broker, "trusted.pem"), "ssl.client.auth": "required",
			"sasl.enabled.mechanisms": "SCRAM-SHA-512", "scram-sha-512.sasl.jaas.config": scram, "connections.max.reauth.ms": "2000",
		}}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.kafka.Kill() })
	if r.minio, err = lab.StartMinIO(ctx, filepath.Join(r.broker, "minio")); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.minio.Kill() })
	if r.bucket, err = lab.CreateBucket(ctx, r.minio.Endpoint, "rotation"); err != nil {
		r.t.Fatal(err)
	}
	if err := r.minio.AddUser(ctx, "first-access", "first-secret-1"); err != nil {
		r.t.Fatal(err)
	}
}

// brokerFiles writes the broker's certificate and the authorities of the clients that it accepts.
func (r *rotation) brokerFiles(broker certs.Pair, authorities []byte) {
	r.t.Helper()
	certs.Write(r.t, r.broker, "both.pem", append(broker.Key, broker.Cert...))
	certs.Write(r.t, r.broker, "trusted.pem", authorities)
}

// write replaces files of the member, all at once, as the kubelet does with those of a mounted Secret: the files are
// links into a folder, and a link to the folder is replaced.
func (r *rotation) write(files map[string]string) {
	r.t.Helper()
	r.round++
	folder := fmt.Sprintf("..%d", r.round)
	if err := os.MkdirAll(filepath.Join(r.dir, folder), 0o700); err != nil {
		r.t.Fatal(err)
	}
	maps.Copy(r.files, files)
	for name, text := range r.files {
		if err := os.WriteFile(filepath.Join(r.dir, folder, name), []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
		if r.round == 1 {
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(r.dir, name)); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	next, data := filepath.Join(r.dir, "..next"), filepath.Join(r.dir, "..data")
	if err := os.Symlink(folder, next); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(next, data); err != nil {
		r.t.Fatal(err)
	}
}

// start starts the member and returns the path of its configuration.
func (r *rotation) start(topic string) (config string) {
	r.t.Helper()
	proxy, err := lab.StartS3Proxy(r.minio.Endpoint)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = proxy.Close() })
	proxy.Slow(func(req *http.Request) bool {
		_, credential, _ := strings.Cut(req.Header.Get("Authorization"), "Credential=")
		r.mu.Lock()
		defer r.mu.Unlock()
		r.keys, _, _ = strings.Cut(credential, "/")
		return false
	}, 0)
	var listen [2]string
	for i := range listen {
		if listen[i], err = lab.FreeAddr(); err != nil {
			r.t.Fatal(err)
		}
	}
	r.api = "https://" + listen[1]
	text := fmt.Sprintf(`
pipeline: p
log: {format: json}
kafka:
  brokers: [%[1]s]
  session: 6s
  offset_commit_interval: 1s
  tls: {ca_file: %[2]s/ca.pem, cert_file: %[2]s/client.pem, key_file: %[2]s/client-key.pem}
  sasl: {mechanism: scram-sha-512, username: %[3]s, password_file: %[2]s/password}
storage:
  url: s3://%[4]s/tables
  s3: {endpoint: %[5]s, region: %[6]s, path_style: true, access_key_file: %[2]s/access, secret_key_file: %[2]s/secret}
retry: {initial: 100ms, max: 1s}
breaker: {open_for: 1s, successes: 1}
defaults: {schema: %[7]q, commit: {every: 500ms}}
topics: {%[8]s: {}}
health: {listen: %[9]q}
ops: {listen: %[10]q, tokens_file: %[2]s/tokens, web_config_file: %[2]s/web.yaml}
shutdown: {drain: 10s}
`, r.kafka.Addrs[onScram], r.dir, user, r.bucket.Name, proxy.Endpoint, lab.Region, gen.DDL, topic, listen[0], listen[1])
	config = certs.Write(r.t, r.t.TempDir(), "config.yaml", []byte(text))
	binary := build(r.t)
	w := &securedBroker{binary: binary}
	r.member = w.start(r.t, config, listen[0])
	r.log = &tablelog.Log{Store: r.bucket, Table: "tables/" + topic}
	return config
}

// stream produces records until the caller calls end.
func (r *rotation) stream(topic string) (ledger *gen.Ledger, end func()) {
	r.t.Helper()
	ledger, err := gen.NewLedger(filepath.Join(r.t.TempDir(), "ledger.csv"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = ledger.Close() })
	stop, done := make(chan struct{}), make(chan error, 1)
	p := gen.Producer{
		Brokers: []string{r.kafka.Addr}, Topic: topic, Orders: gen.Orders{Seed: 7, Span: 100_000, Odd: 20}, Records: 1 << 40, Codec: "lz4",
		PerSecond: 500, Stop: stop,
	}
	go func() { done <- p.Run(r.t.Context(), ledger) }()
	return ledger, func() {
		r.t.Helper()
		close(stop)
		if err := <-done; err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rotation) awaitRows(n int64) {
	r.t.Helper()
	r.await(fmt.Sprintf("the table has %d rows", n), func() (bool, error) {
		commits, err := r.log.Read(r.t.Context())
		return tablelog.Rows(commits) >= n, err
	})
}

// progress waits until the table has grown by what two seconds bring.
func (r *rotation) progress() {
	r.t.Helper()
	commits, err := r.log.Read(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.awaitRows(tablelog.Rows(commits) + 1000)
}

func (r *rotation) await(what string, check func() (bool, error)) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	err := lab.Until(ctx, func() (bool, error) {
		if !r.member.Running() {
			return false, fmt.Errorf("the member has ended: %s", r.member.Tail())
		}
		return check()
	})
	if err != nil {
		r.t.Fatalf("wait until %s: %v\n%s", what, err, r.member.Tail())
	}
}

// held reports whether the member has a hold with this reason.
func (r *rotation) held(reason string) (bool, error) {
	h, err := r.member.health()
	for _, hold := range h.Holds {
		if hold.Reason == reason {
			return true, err
		}
	}
	return false, err
}

// s3Keys gives the member new keys while the old ones still work: no request may be denied. Then it deletes the user
// before the files change: the member waits, and continues with the next keys.
func (r *rotation) s3Keys() {
	ctx := r.t.Context()
	if err := r.minio.AddUser(ctx, "second-access", "second-secret-2"); err != nil {
		r.t.Fatal(err)
	}
	r.write(map[string]string{"access": "second-access", "secret": "second-secret-2"})
	r.await("a request has the new keys", func() (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.keys == "second-access", nil
	})
	if err := r.minio.RemoveUser(ctx, "first-access"); err != nil {
		r.t.Fatal(err)
	}
	r.progress()
	if text, err := os.ReadFile(r.member.Log); err != nil || strings.Contains(string(text), "store_denied") {
		r.t.Errorf("the store has denied a request, although the keys overlap (%v)", err)
	}

	if err := r.minio.RemoveUser(ctx, "second-access"); err != nil {
		r.t.Fatal(err)
	}
	r.await("the store denies the requests", func() (bool, error) { return r.held("store_denied") })
	if err := r.minio.AddUser(ctx, "third-access", "third-secret-3"); err != nil {
		r.t.Fatal(err)
	}
	r.write(map[string]string{"access": "third-access", "secret": "third-secret-3"})
	r.progress()
}

// password changes the password at the broker, waits until sessions with the old one have ended, and then changes the
// file.
func (r *rotation) password() {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.Addr))
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	upsert := []kadm.UpsertSCRAM{{User: user, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "second-password"}}
	altered, err := kadm.NewClient(client).AlterUserSCRAMs(r.t.Context(), nil, upsert)
	if err == nil {
		err = altered.Error()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.await("the broker refuses the old password", func() (bool, error) { return r.held("kafka_denied") })
	r.write(map[string]string{"password": "second-password"})
	r.progress()
}

// certificates moves the member and the broker to another authority: the member trusts both and gets a certificate of
// the second, then the broker gets one and trusts the second only. Its restart closes all connections.
func (r *rotation) certificates(second *certs.CA) {
	client := second.Issue(r.t, certs.Leaf{Name: "second client"})
	r.write(map[string]string{
		"ca.pem": r.files["ca.pem"] + string(second.PEM), "client.pem": string(client.Cert), "client-key.pem": string(client.Key),
	})
	r.brokerFiles(second.Issue(r.t, certs.Leaf{Name: "broker", Hosts: []string{"127.0.0.1"}}), second.PEM)
	if err := r.kafka.Stop(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.kafka.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.progress()
}

// apiSecrets changes the token and the certificate of the ops API.
func (r *rotation) apiSecrets(first, second *certs.CA) {
	r.asks(first, "first-token", http.StatusOK)
	site := second.Issue(r.t, certs.Leaf{Name: "second", Hosts: []string{"127.0.0.1"}})
	r.write(map[string]string{"tokens": tokenLine("ada", "second-token"), "site.pem": string(site.Cert), "site-key.pem": string(site.Key)})
	// A wrong token counts as an attempt to guess one, so the test waits for the log.
	r.await("the member uses the new tokens", func() (bool, error) {
		text, err := os.ReadFile(r.member.Log)
		return strings.Contains(string(text), "tokens file changed; using the new tokens"), err
	})
	r.asks(second, "second-token", http.StatusOK)
	r.asks(second, "first-token", http.StatusUnauthorized)
}

// asks sends a request with a token, over TLS verified with an authority.
func (r *rotation) asks(ca *certs.CA, token string, want int) {
	r.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.api+"/internal/v1/whoami", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		r.t.Errorf("%s: %v", token, err)
		return
	}
	_ = resp.Body.Close() // only the status counts
	if resp.StatusCode != want {
		r.t.Errorf("%s: %s, want %d", token, resp.Status, want)
	}
}

func tokenLine(name, token string) string {
	return fmt.Sprintf("%s viewer %x\n", name, sha256.Sum256([]byte(token)))
}

// check compares the table with the ledger, using independent readers, and runs `connector verify` with the newest
// secrets.
func (r *rotation) check(ledger *gen.Ledger, config string) {
	r.t.Helper()
	if err := ledger.Flush(); err != nil {
		r.t.Fatal(err)
	}
	out, err := lab.Python(r.t.Context(), "oracle/check.py", "--ledger", ledger.Path, "--table", "s3://"+r.bucket.Name+"/"+r.log.Table, "--endpoint", r.minio.Endpoint)
	r.t.Logf("%d records in the ledger\n%s", ledger.Len(), out)
	if err != nil {
		r.t.Errorf("the table differs from the produced records: %v", err)
	}
	w := &securedBroker{binary: build(r.t)}
	if code, text := w.command(r.t, "verify", "--kafka", "--config", config); code != 0 {
		r.t.Errorf("connector verify: exit code %d: %s", code, text)
	}
}
