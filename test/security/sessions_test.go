//go:build lab

package security

import (
	"os"
	"strings"
	"testing"
	"time"

	"sluice/test/certs"
)

// rounds is how many rounds the function stream produces. A round lasts half a second, so all rounds together last
// longer than five SASL sessions of two seconds.
const rounds = 24

// sessionsOfScram uses a listener on which a SASL session lasts two seconds. The member must authenticate again before
// each end. It must stay in one generation of the group, log no warning, and have no failed fetch.
func (w *securedBroker) sessionsOfScram(t *testing.T) {
	t.Helper()
	topic := w.topic(t)
	path, listen := w.config(t, topic, w.kafka.Addrs[onScram], "tls: {ca_file: "+w.ca+
		"}\nsasl: {mechanism: scram-sha-512, username: "+user+`, password: "${PASSWORD}"}`)
	m := w.start(t, path, listen)
	m.reads(t, records)
	total := w.stream(t, m, topic, records)
	m.undisturbed(t, total)
}

// sessionsOfTokens does the same with a token from a file. Then the file gets an expired token, and the member must
// have a hold that says so. A new token in the file must end the hold.
func (w *securedBroker) sessionsOfTokens(t *testing.T) {
	t.Helper()
	topic := w.topic(t)
	dir := t.TempDir()
	token := func(lasting time.Duration) {
		t.Helper()
		next := certs.Write(t, dir, "next", []byte(jws(time.Now().Add(lasting))))
		if err := os.Rename(next, dir+"/token"); err != nil {
			t.Fatal(err)
		}
	}
	token(time.Minute)
	path, listen := w.config(t, topic, w.kafka.Addrs[onBearer], "tls: {ca_file: "+w.ca+
		"}\nsasl: {mechanism: oauthbearer, token_file: "+dir+"/token}")
	m := w.start(t, path, listen)
	m.reads(t, records)
	total := w.stream(t, m, topic, records)
	m.undisturbed(t, total)

	token(-time.Second)
	await(t, func() (bool, error) {
		h, err := m.health()
		for _, hold := range h.Holds {
			if hold.Reason == "kafka_denied" && strings.Contains(hold.Detail, "refuses the token, which has expired") {
				return true, err
			}
		}
		return false, err
	})
	w.produce(t, topic, total, 100)
	token(time.Hour)
	m.reads(t, total+100)
}

// renewed expects a running connector to use a renewed certificate for new connections.
func (w *securedBroker) renewed(t *testing.T) {
	t.Helper()
	topic := w.topic(t)
	dir := t.TempDir()
	install := func(cert, key string) {
		t.Helper()
		for name, from := range map[string]string{"cert.pem": cert, "key.pem": key} {
			b, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			certs.Write(t, dir, name, b)
		}
	}
	install(w.expiredCert, w.itsKey)
	path, listen := w.config(t, topic, w.kafka.Addrs[onMutual],
		"tls: {ca_file: "+w.ca+", cert_file: "+dir+"/cert.pem, key_file: "+dir+"/key.pem}")
	m := w.start(t, path, listen)
	await(t, func() (bool, error) {
		h, err := m.health()
		return len(h.Holds) > 0 && h.Holds[0].Reason == "kafka_denied" && strings.Contains(h.Holds[0].Detail, "which has expired"), err
	})
	install(w.cert, w.key)
	m.reads(t, records)
}

// stream produces rounds times 20 records while the member reads, from number from on. It returns the number of records
// in the topic afterwards.
func (w *securedBroker) stream(t *testing.T, m *member, topic string, from int64) int64 {
	t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for range rounds {
		<-tick.C
		w.produce(t, topic, from, 20)
		from += 20
	}
	m.reads(t, from)
	return from
}

// reads waits until the sum of the table's positions is at least n.
func (m *member) reads(t *testing.T, n int64) {
	t.Helper()
	ctx := withPatience(t)
	for ctx.Err() == nil {
		if at, err := m.position(); err != nil {
			t.Fatal(err)
		} else if at >= n {
			return
		}
		wait := time.NewTimer(50 * time.Millisecond)
		<-wait.C
	}
	text, err := m.text()
	t.Fatalf("does not reach %d records (%v):\n%s", n, err, text)
}

// undisturbed expects the member to have authenticated again at least five times. It must have fetched each record
// once, in one generation of the group, and have logged no error and no warning.
func (m *member) undisturbed(t *testing.T, records int64) {
	t.Helper()
	for _, tt := range []struct {
		name, label string
		low, high   float64
	}{
		{"sluice_kafka_reauthentications_total", `result="ok"`, 5, 1000},
		{"sluice_kafka_reauthentications_total", "", 5, 1000},
		{"sluice_group_generations_total", "", 1, 1},
		{"sluice_fetch_errors_total", "", 0, 0},
		{"sluice_fetch_records_total", "", float64(records), float64(records)},
	} {
		v, err := m.metric(tt.name, tt.label)
		if err != nil || v < tt.low || v > tt.high {
			t.Errorf("%s{%s} is %v (%v), want %v to %v", tt.name, tt.label, v, err, tt.low, tt.high)
		}
		t.Logf("%s{%s} = %v", tt.name, tt.label, v)
	}
	text, err := m.text()
	_, text, _ = strings.Cut(text, `"msg":"joined"`) // warnings before the join are allowed: a new cluster has no coordinator at first
	if err != nil || strings.Contains(text, `"level":"WARN"`) || strings.Contains(text, `"level":"ERROR"`) {
		t.Errorf("%v, the log says:\n%s", err, text)
	}
}
