//go:build lab

package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"sluice/test/lab"
)

func TestAlertmanagerConfig(t *testing.T) {
	program, err := lab.Install(t.Context(), "amtool")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, "check-config", filepath.Join(folder(t), "alertmanager.yaml")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// page is a notification as Alertmanager posts it to a webhook.
type page struct {
	Receiver string `json:"receiver"`
	Status   string `json:"status"`
	Alerts   []struct {
		Labels map[string]string `json:"labels"`
	} `json:"alerts"`
}

func (p page) names() (names []string) {
	for _, a := range p.Alerts {
		names = append(names, a.Labels["alertname"])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// alertmanager runs Debian's Alertmanager with deploy/alertmanager.yaml. The test changes two things in that file: each
// receiver is a webhook of the test, and each wait is a second.
type alertmanager struct {
	t     *testing.T
	url   string
	began time.Time
	pages chan page
}

func newAlertmanager(t *testing.T) *alertmanager {
	t.Helper()
	program, err := lab.Install(t.Context(), "alertmanager")
	if err != nil {
		t.Fatal(err)
	}
	a := &alertmanager{t: t, began: time.Now(), pages: make(chan page, 100)}
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p page
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.pages <- p
	}))
	t.Cleanup(webhook.Close)
	addr, err := lab.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, err := lab.StartProcess("alertmanager", filepath.Join(dir, "log"), nil, program,
		"--config.file", a.config(dir, webhook.URL), "--storage.path", dir, "--web.listen-address", addr, "--cluster.listen-address", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	a.url = "http://" + addr
	for a.get("/-/ready") != nil {
		if !p.Running() {
			t.Fatalf("Alertmanager ended: %s", p.Tail())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return a
}

// config writes the shipped file with the test's addresses and waits, and returns its path.
func (a *alertmanager) config(dir, webhook string) string {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(folder(a.t), "alertmanager.yaml"))
	if err != nil {
		a.t.Fatal(err)
	}
	changed := regexp.MustCompile(`https://\w+\.example\.com/alertmanager`).ReplaceAll(text, []byte(webhook))
	changed = regexp.MustCompile(`group_(wait|interval): \w+`).ReplaceAll(changed, []byte("group_$1: 1s"))
	path := filepath.Join(dir, "alertmanager.yaml")
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// get requests a path of the API and returns an error unless the status is 200.
func (a *alertmanager) get(path string) error {
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.url+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return nil
}

// post posts firing alerts as Prometheus does. They stop firing at the time ends, unless they are posted again.
func (a *alertmanager) post(alerts []alert, ends time.Time) {
	a.t.Helper()
	type posted struct {
		Labels   alert      `json:"labels"`
		StartsAt time.Time  `json:"startsAt"`
		EndsAt   *time.Time `json:"endsAt,omitempty"`
	}
	var all []posted
	for _, labels := range alerts {
		p := posted{Labels: labels, StartsAt: time.Now()}
		if !ends.IsZero() {
			p.StartsAt, p.EndsAt = a.began, &ends
		}
		all = append(all, p)
	}
	body, err := json.Marshal(all)
	if err != nil {
		a.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+"/api/v2/alerts", bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		a.t.Fatalf("%s: %s", resp.Status, text)
	}
}

// until waits for a notification to this receiver with this status. It returns all notifications that came meanwhile,
// that one last, and fails the test if it does not come within two minutes.
func (a *alertmanager) until(receiver, status string) (all []page) {
	a.t.Helper()
	for {
		select {
		case p := <-a.pages:
			all = append(all, p)
			if p.Receiver == receiver && p.Status == status {
				return all
			}
		case <-time.After(2 * time.Minute): // ends a test that would wait for ever
			a.t.Fatalf("%s got nothing that is %s, only %+v", receiver, status, all)
		}
	}
}

// TestPages expects the alerts of ten members in one outage to reach the pager as one page, even if each member also
// raises alerts that the inhibition rules suppress.
func TestPages(t *testing.T) {
	for _, o := range []*outage{kafkaDown(), storeDown()} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			a := newAlertmanager(t)
			first, long := o.fires[1].alerts, o.fires[3].alerts
			cause := slices.IndexFunc(first, func(a alert) bool { return a["alertname"] == "SluiceHeldByOutage" })
			more := slices.Concat(
				eachMember("critical", "ConsumerUnhealthy", "group", "orders"), eachMember("critical", "SluiceCanarySilent"),
				[]alert{
					of("critical", "ConsumerLagCritical", "topic", "orders"), of("critical", "ConsumerLagCritical", "topic", "payments"),
					of("critical", "SluicePartitionsStopped", "topic", "orders"),
				},
			)
			if strings.HasPrefix(o.name, "Kafka") {
				more = append(more, eachMember("critical", "SluiceNotInGroup")...)
			}
			a.post(first[cause:cause+1], time.Time{})
			pages := a.until("chat", "firing")
			a.post(slices.Concat(long, more), time.Time{})
			pages = append(pages, a.until("pager", "firing")...)
			a.post(slices.Concat(long, more), time.Now())
			pages = append(pages, a.until("pager", "resolved")...)
			var firing []string
			for _, p := range pages {
				if p.Receiver == "pager" && p.Status == "firing" {
					firing = append(firing, strings.Join(p.names(), " "))
				}
				if p.Receiver == "chat" && p.Status == "firing" && len(p.Alerts) > 1 {
					t.Errorf("the chat gets %d alerts, %v: want the outage alone", len(p.Alerts), p.names())
				}
			}
			if !slices.Equal(firing, []string{"SluiceHeldByLongOutage"}) {
				t.Errorf("pages %q, want one with SluiceHeldByLongOutage", firing)
			}
		})
	}
}

// TestInhibited expects the inhibition rules to name only alerts that exist, and not to suppress alerts that an outage
// cannot explain.
func TestInhibited(t *testing.T) {
	read := func(name string, v any) {
		text, err := os.ReadFile(filepath.Join(folder(t), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, v); err != nil {
			t.Fatal(err)
		}
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	read("alerts.yaml", &rules)
	known := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			known[r.Alert] = true
		}
	}
	var config struct {
		Inhibit []struct {
			Source []string `yaml:"source_matchers"`
			Target []string `yaml:"target_matchers"`
		} `yaml:"inhibit_rules"`
	}
	read("alertmanager.yaml", &config)
	matcher := regexp.MustCompile(`^alertname=~?"([A-Za-z|]+)"$`)
	never := []string{
		"DLQFinancial", "SluiceDataLossImminent", "SluiceGroupGone", "SluiceHeldByLongOutage", "SluiceHeldDenied", "SluiceHeldForOperator",
		"SluiceOperationsLogBroken", "SluiceTableOverwritten",
	}
	for _, rule := range config.Inhibit {
		for _, m := range slices.Concat(rule.Source, rule.Target) {
			if names := matcher.FindStringSubmatch(m); names != nil {
				for name := range strings.SplitSeq(names[1], "|") {
					if !known[name] {
						t.Errorf("there is no alert %s", name)
					}
				}
			}
		}
		for _, m := range rule.Target {
			for _, name := range never {
				if strings.Contains(m, name) && !slices.Contains(rule.Target, `reason="dead_letters_unavailable"`) {
					t.Errorf("%s is inhibited by %v", name, rule.Source)
				}
			}
		}
	}
}
