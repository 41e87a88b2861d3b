//go:build lab

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/sink/opslog"
	"sluice/test/lab"
)

// apiToken is the token of the operator ada, who has the role replayer.
const apiToken = "the token of ada"

// opsAPI is the ops API of one member.
type opsAPI struct {
	s       *scene
	address string
}

// opsAPI returns an address for the ops API, and the setting with which a member serves it there.
func (s *scene) opsAPI() (*opsAPI, setting) {
	s.t.Helper()
	address, err := lab.FreeAddr()
	if err != nil {
		s.t.Fatal(err)
	}
	tokens := filepath.Join(s.dir, "tokens")
	line := fmt.Sprintf("ada replayer %x\n", sha256.Sum256([]byte(apiToken)))
	if err := os.WriteFile(tokens, []byte(line), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return &opsAPI{s, address}, func(c *settings) { c.ops = fmt.Sprintf("listen: %q, tokens_file: %q", address, tokens) }
}

// send sends a request with the token of ada and returns the status and the body of the response.
func (a *opsAPI) send(method, path, body string) (status int, text []byte, err error) {
	req, err := http.NewRequestWithContext(a.s.ctx, method, "http://"+a.address+"/internal/v1/"+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+apiToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// decides sends a decision. It fails the test unless the response says that the decision changed something, and has an
// entry of the operations log with ada as its operator.
func (a *opsAPI) decides(method, path, body string) {
	a.s.t.Helper()
	status, text, err := a.send(method, path, body)
	var decided struct {
		Changed bool
		Entry   struct{ Operator string }
	}
	if err == nil {
		err = json.Unmarshal(text, &decided)
	}
	if err != nil || status != http.StatusOK || !decided.Changed || decided.Entry.Operator != "ada" {
		a.s.t.Fatalf("%s %s: status %d: %v: %s", method, path, status, err, text)
	}
}

// audit returns kind and operator of each entry of the operations log, as the command and the API list them, and
// expects `audit verify` to find nothing.
func (a *opsAPI) audit() (all []string) {
	a.s.t.Helper()
	a.s.wants(0, "audit", "verify")
	entries := func(text []byte) (all []string) {
		var log struct{ Entries []opslog.Entry }
		if err := json.Unmarshal(text[max(0, bytes.Index(text, []byte("{\n"))):], &log); err != nil {
			a.s.t.Fatalf("%v: %s", err, tail(text))
		}
		for _, e := range log.Entries {
			all = append(all, fmt.Sprintf("%s by %s", e.Kind, e.Operator))
		}
		return all
	}
	all = entries([]byte(a.s.wants(0, "audit", "list", "--output", "json")))
	_, text, err := a.send(http.MethodGet, "audit", "")
	if err != nil {
		a.s.t.Fatal(err)
	}
	if of := entries(text); !slices.Equal(of, all) {
		a.s.t.Errorf("the API lists %q, the command %q", of, all)
	}
	return all
}

// owns reports whether a member has a partition.
func (r report) owns(partition int32) bool {
	return slices.ContainsFunc(r.Partitions, func(p partitionReport) bool { return p.Partition == partition })
}

// paused reports whether a partition is paused.
func (r report) paused(partition int32) bool {
	for _, h := range r.Holds {
		if h.Partition == partition && h.Reason == "paused" {
			return true
		}
	}
	return false
}

// twoMembers are two members. The field owner is the one that has a certain partition. The field other is the one that
// gets the requests.
type twoMembers struct {
	s            *scene
	owner, other *member
	api          *opsAPI // of the other one
}

// startTwo starts two members and waits until both have partitions, and exactly one of them has the given partition.
func (s *scene) startTwo(partition int32) *twoMembers {
	s.t.Helper()
	apiA, withA := s.opsAPI()
	apiB, withB := s.opsAPI()
	a, b := s.start(withA), s.start(withB)
	p := &twoMembers{s: s}
	s.await("two members have partitions", func() (bool, error) {
		ofA, err := a.health()
		if err != nil {
			return false, err
		}
		ofB, err := b.health()
		if err != nil || !ofA.Ready || !ofB.Ready || len(ofA.Partitions) == 0 || len(ofB.Partitions) == 0 {
			return false, err
		}
		switch {
		case ofA.owns(partition) && !ofB.owns(partition):
			p.owner, p.other, p.api = a, b, apiB
		case ofB.owns(partition) && !ofA.owns(partition):
			p.owner, p.other, p.api = b, a, apiA
		}
		return p.owner != nil, nil
	})
	return p
}

// hears sends a decision to one member, waits until the other one shows its effect, and logs how long that took.
// Members follow the operations log within ten seconds; a busy machine may take longer, so there is no bound.
func (p *twoMembers) hears(path, body string, partition int32, paused bool) {
	p.s.t.Helper()
	began := time.Now()
	p.api.decides(http.MethodPost, path, body)
	answered := time.Since(began)
	p.owner.await(path+" has its effect", func(r report) bool { return r.owns(partition) && r.paused(partition) == paused })
	p.s.t.Logf("%s: answered by %s after %v, heard by %s after %v", path, p.other.Name, answered.Round(time.Millisecond), p.owner.Name, time.Since(began).Round(time.Millisecond))
}

// TestAPI_PauseAndResume pauses a partition by the API of a member that does not have it, and kills both members. The
// next members must keep the pause, and the resume by one of them must be heard by the other one. The table must have
// every record, and the operations log the name of the operator.
func TestAPI_PauseAndResume(t *testing.T) {
	t.Parallel()
	const partition = 1
	s := newScene(t, 4)
	end := s.stream(500)
	target := fmt.Sprintf("%s:%d", s.name, partition)
	first := s.startTwo(partition)
	s.awaitRows(1000)
	first.hears("pause", fmt.Sprintf(`{"targets": [%q], "reason": "disk of broker 2"}`, target), partition, true)
	at := int64(-1)
	s.await("the records read before the pause are committed", func() (bool, error) {
		r, err := first.owner.health()
		for _, h := range r.Holds {
			if h.Partition == partition && h.Offset == s.positions()[partition] {
				at = h.Offset
			}
		}
		return at >= 0, err
	})
	s.awaitRows(s.rows() + 1000) // of the other partitions
	first.owner.kill()
	first.other.kill()

	second := s.startTwo(partition)
	second.owner.await("the partition is paused", func(r report) bool { return r.paused(partition) })
	s.awaitRows(s.rows() + 1000)
	if now := s.positions()[partition]; now != at {
		t.Errorf("the paused partition moved from %d to %d", at, now)
	}
	second.hears("resume", fmt.Sprintf(`{"targets": [%q], "reason": "the disk was replaced"}`, target), partition, false)
	s.awaitPosition(partition, at+1)
	end()
	s.awaitOthers()
	if all, want := second.api.audit(), []string{"pause by ada", "resume by ada"}; !slices.Equal(all, want) {
		t.Errorf("the operations log has %q, want %q", all, want)
	}
	second.owner.drain()
	second.other.drain()
	s.check()
}

// TestAPI_FinancialLetter produces two dead letters of a financial topic, one after the other. /health must count each
// of them, and the alert of deploy/alerts.yaml must fire for each in a real Prometheus. The first alert must end after
// an acknowledgement, the second one after a discard.
func TestAPI_FinancialLetter(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	s.badLedger = s.newLedger("bad.csv")
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	api, with := s.opsAPI()
	m := s.start(financial, with)
	prometheus, err := lab.StartPrometheus(s.ctx, filepath.Join(s.dir, "prometheus"), strings.TrimPrefix(m.url, "http://"), filepath.Join(root, "deploy", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := prometheus.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.produce(100)
	s.awaitPassed()
	m.countsLetters(0)
	firing := func(want bool) {
		t.Helper()
		began := time.Now()
		s.await(fmt.Sprintf("the alert fires: %v", want), func() (bool, error) {
			alerts, err := prometheus.Alerts(s.ctx)
			if err != nil {
				return false, err
			}
			fires := false
			for _, a := range alerts {
				fires = fires || a.State == "firing" && a.Labels["alertname"] == "DLQFinancial" && a.Labels["topic"] == s.name && a.Labels["severity"] == "critical"
			}
			return fires == want, nil
		})
		t.Logf("firing is %v after %v", want, time.Since(began).Round(100*time.Millisecond))
	}
	health := func(letters int64) {
		t.Helper()
		m.await(fmt.Sprintf("it reports %d unresolved dead letters", letters), func(r report) bool {
			var details struct {
				Total *int64 `json:"unresolved_total"`
			}
			c := r.Components["letters"]
			if err := json.Unmarshal(c.Details, &details); err != nil || details.Total == nil {
				return false
			}
			return *details.Total == letters && (letters == 0 || c.Status == "degraded" && strings.Contains(c.Reason, "unresolved dead letters"))
		})
	}
	arrives := func() (at place) {
		t.Helper()
		for at = range s.ruin(1, 1) {
			s.awaitPosition(at.partition, at.offset+1)
		}
		health(1)
		firing(true)
		return at
	}
	ends := func() {
		t.Helper()
		health(0)
		firing(false)
	}

	at := arrives()
	api.decides(http.MethodPost, "deadletters/acknowledge",
		fmt.Sprintf(`{"records": ["%s:%d@%d"], "reason": "the customer was called"}`, s.name, at.partition, at.offset))
	ends()
	arrives()
	api.decides(http.MethodDelete, "dlq/"+s.deadLetters()+"/1?reason=test+order", "")
	ends()
	if all, want := api.audit(), []string{"letters.acknowledge by ada", "letters.discard by ada"}; !slices.Equal(all, want) {
		t.Errorf("the operations log has %q, want %q", all, want)
	}
	m.drain()
	if c := s.countLetters(financial); c.Acknowledged != 1 || c.Discarded != 1 || c.Unresolved != 0 {
		t.Errorf("list says %+v", c)
	}
	s.wants(0, "verify", "--kafka")
}
