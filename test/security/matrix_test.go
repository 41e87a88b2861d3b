//go:build lab

package security

import (
	"strings"
	"testing"

	"sluice/test/lab"
)

// cell is one way to connect.
type cell struct {
	name    string
	address string
	kafka   string // the keys below kafka in config.yaml
	want    string // text that must name the fault; "" if records must arrive
}

// matrix tests the ways to connect: PLAINTEXT, TLS, mTLS, and SASL_SSL with each mechanism. With right settings records
// must arrive in the table. With wrong credentials, a wrong certificate authority, an expired certificate or a listener
// of another kind, commands and a running connector must name the fault.
func (w *securedBroker) matrix(t *testing.T) {
	t.Helper()
	for _, c := range w.cells() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.want == "" {
				w.arrives(t, c)
			} else {
				w.named(t, c)
			}
		})
	}
}

func (w *securedBroker) cells() []cell {
	at := w.kafka.Addrs
	tls := func(more ...string) string {
		return "tls: {ca_file: " + w.ca + strings.Join(append([]string{""}, more...), ", ") + "}"
	}
	mine := func(cert, key string) string { return tls("cert_file: "+cert, "key_file: "+key) }
	strange := "tls: {ca_file: " + w.strangeCA + "}"
	as := func(mechanism, secret string) string {
		return "\nsasl: {mechanism: " + mechanism + ", username: " + user + ", password: " + secret + "}"
	}
	const right = `"${PASSWORD}"`
	bearer := func(file string) string { return "\nsasl: {mechanism: oauthbearer, token_file: " + file + "}" }
	const (
		unknown   = "its certificate is signed by an authority that we do not trust (subject CN=broker, issuer CN=lab authority)"
		expired   = "its certificate has expired"
		refused   = "refuses the credentials"
		needsSASL = "demands SASL and we have no credentials (it offers "
	)
	cells := []cell{
		{"PLAINTEXT", w.kafka.Addr, "", ""},
		{"PLAINTEXT at TLS", at[onTLS], "", "speaks TLS and we do not"},
		{"PLAINTEXT at mTLS", at[onMutual], "", "speaks TLS and we do not"},
		{"PLAINTEXT at SASL_SSL", at[onSASL], "", "speaks TLS and we do not"},

		{"TLS", at[onTLS], tls(), ""},
		{"TLS, wrong CA", at[onTLS], strange, unknown},
		{"TLS, expired", at[onExpired], tls(), expired},
		{"TLS, other host", at[onOther], tls(), "its certificate is for another host (127.0.0.1 is not among its names [kafka.example])"},
		{"TLS, server name", at[onOther], tls("server_name: kafka.example"), ""},
		{"TLS at PLAINTEXT", w.kafka.Addr, tls(), "speaks no TLS"},
		{"TLS at SASL_SSL", at[onSASL], tls(), needsSASL},

		{"mTLS", at[onMutual], mine(w.cert, w.key), ""},
		{"mTLS, no certificate", at[onMutual], tls(), "demands a client certificate and we have none"},
		{"mTLS, wrong certificate", at[onMutual], mine(w.strangerCert, w.herKey), "refuses our client certificate"},
		{"mTLS, wrong CA", at[onMutual], strings.Replace(mine(w.cert, w.key), w.ca, w.strangeCA, 1), unknown},
		{"mTLS, expired", at[onMutual], mine(w.expiredCert, w.itsKey), "refuses our client certificate, which has expired"},

		{"OAUTHBEARER", at[onSASL], tls() + bearer(w.token), ""},
		{"OAUTHBEARER, wrong token", at[onSASL], tls() + bearer(w.ca), "the token holds characters that no token has"},
		{"OAUTHBEARER, expired token", at[onSASL], tls() + bearer(w.staleToken), "refuses the token, which has expired"},
		{"OAUTHBEARER, wrong CA", at[onSASL], strange + bearer(w.token), unknown},
		{"OAUTHBEARER, not enabled", at[onScram], tls() + bearer(w.token), "does not offer this SASL mechanism (OAUTHBEARER; it offers SCRAM-SHA-512)"},
	}
	for _, m := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		name := strings.ToUpper(m)
		cells = append(
			cells,
			cell{name, at[onSASL], tls() + as(m, right), ""},
			cell{name + ", wrong password", at[onSASL], tls() + as(m, "wrong"), refused + " (" + name + " as " + user + ": Authentication failed"},
			cell{name + ", wrong CA", at[onSASL], strange + as(m, right), unknown},
			cell{name + ", expired", at[onExpired], tls() + as(m, right), expired},
			cell{name + " at TLS", at[onTLS], tls() + as(m, right), "does not authenticate with SASL"},
		)
	}
	return cells
}

// arrives expects the records in the table, and no difference between table and topic.
func (w *securedBroker) arrives(t *testing.T, c cell) {
	t.Helper()
	topic := w.topic(t)
	path, _ := w.config(t, topic, c.address, c.kafka)
	for _, command := range [][]string{{"run", "--until-current"}, {"verify", "--kafka"}, {"offsets", "show"}, {"check"}} {
		if code, text := w.command(t, append(command, "--config", path)...); code != 0 {
			t.Errorf("%s: exit code %d: %s", command, code, text)
		} else if command[0] == "verify" && !strings.Contains(text, "500") {
			t.Errorf("verify does not see the records: %s", text)
		}
	}
}

// named expects the commands `offsets show` and `check` to fail with a text that names the fault. A running connector
// must have a hold kafka_denied whose detail names the fault, and its log must not contain the password.
func (w *securedBroker) named(t *testing.T, c cell) {
	t.Helper()
	topic := "topic-of-nobody"
	path, listen := w.config(t, topic, c.address, c.kafka)
	if code, text := w.command(t, "offsets", "show", "--config", path); code != 1 || !strings.Contains(text, c.want) {
		t.Errorf("offsets show: exit code %d, want 1 and %q: %s", code, c.want, text)
	}
	if code, text := w.command(t, "check", "--config", path); code != 3 || !strings.Contains(text, c.want) || !strings.Contains(text, "to do: ") {
		t.Errorf("check: exit code %d, want 3, a hint and %q: %s", code, c.want, text)
	}
	m := w.start(t, path, listen)
	var found string
	await(t, func() (bool, error) {
		h, err := m.health()
		for _, hold := range h.Holds {
			if hold.Reason == "kafka_denied" {
				found = hold.Detail
			}
		}
		return found != "", err
	})
	if !strings.Contains(found, c.want) {
		t.Errorf("the hold says %q, want %q", found, c.want)
	}
	log, err := m.text()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log, password) {
		t.Error("the log shows the password")
	}
}

// await waits until check returns true.
func await(t *testing.T, check func() (bool, error)) {
	t.Helper()
	if err := lab.Until(withPatience(t), check); err != nil {
		t.Fatal(err)
	}
}
