//go:build lab

package security

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/test/lab"
)

// member is a running connector.
type member struct {
	*lab.Process
	url string
}

func (w *securedBroker) start(t *testing.T, path, listen string) *member {
	t.Helper()
	p, err := lab.StartProcess("connector", filepath.Join(filepath.Dir(path), "log"), []string{"PASSWORD=" + password},
		w.binary, "run", "--config", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return &member{p, "http://" + listen}
}

func (m *member) text() (string, error) {
	b, err := os.ReadFile(m.Log)
	return string(b), err
}

type report struct {
	Joined     bool
	Holds      []struct{ Reason, Detail string }
	Partitions []struct{ Position int64 }
}

// health returns the member's report, or a zero report while its health server does not respond.
func (m *member) health() (report, error) {
	var r report
	if !m.Running() {
		return r, fmt.Errorf("the connector has ended: %s", m.Tail())
	}
	resp, err := http.Get(m.url + "/health")
	if err != nil {
		return r, nil // the health server does not listen yet
	}
	defer func() { _ = resp.Body.Close() }()
	return r, json.NewDecoder(resp.Body).Decode(&r)
}

// position returns the sum of the positions of all partitions.
func (m *member) position() (sum int64, err error) {
	r, err := m.health()
	for _, p := range r.Partitions {
		sum += max(p.Position, 0)
	}
	return sum, err
}

// metric returns the sum of the series of a metric that have label in the text of their labels.
func (m *member) metric(name, label string) (sum float64, err error) {
	resp, err := http.Get(m.url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, _, _ := strings.Cut(series, "{"); n == name && strings.Contains(series, label) {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, nil
}

func withPatience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// jws returns an unsecured token (RFC 7515, A.5) that is valid until a time. Kafka's brokers accept it in tests.
func jws(until time.Time) string {
	e := base64.RawURLEncoding.EncodeToString
	return e([]byte(`{"alg":"none"}`)) + "." + e(fmt.Appendf(nil, `{"sub":%q,"iat":%d,"exp":%d}`,
		user, time.Now().Add(-time.Hour).Unix(), until.Unix())) + "."
}
