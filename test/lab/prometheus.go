package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Prometheus is a Prometheus server that scrapes one process and evaluates one file of rules, both every five seconds.
type Prometheus struct {
	url  string
	proc *Process
}

// StartPrometheus starts a server with its data in the folder dir. It scrapes target (host:port) as job sluice and
// loads the file rules. The caller must call Stop.
func StartPrometheus(ctx context.Context, dir, target, rules string) (*Prometheus, error) {
	program, err := Install(ctx, "prometheus")
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: [%q]
scrape_configs: [{job_name: sluice, static_configs: [{targets: [%q]}]}]
`, rules, target)
	config := filepath.Join(dir, "prometheus.yaml")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(config, []byte(text), 0o644)); err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	proc, err := StartProcess("Prometheus", filepath.Join(dir, "prometheus.log"), nil, program,
		"--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr)
	if err != nil {
		return nil, err
	}
	p := &Prometheus{url: "http://" + addr, proc: proc}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = Until(ctx, func() (bool, error) {
		if !proc.Running() {
			return false, errors.New("it ended")
		}
		return p.get(ctx, "/-/ready", nil) == nil, nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start Prometheus: %w: %s", err, proc.Tail()), proc.Kill())
	}
	return p, nil
}

// Stop ends the server.
func (p *Prometheus) Stop() error { return p.proc.Stop(10 * time.Second) }

// PromSample is one series of a query's result.
type PromSample struct {
	Labels map[string]string
	Value  string
}

// Query returns the result of an instant query.
func (p *Prometheus) Query(ctx context.Context, query string) ([]PromSample, error) {
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  [2]any            `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
		return nil, err
	}
	var all []PromSample
	for _, r := range answer.Data.Result {
		value, _ := r.Value[1].(string)
		all = append(all, PromSample{r.Metric, value})
	}
	return all, nil
}

// PromAlert is an alert that is pending or firing.
type PromAlert struct {
	State  string            `json:"state"`
	Labels map[string]string `json:"labels"`
}

// Alerts returns the alerts that are pending or firing.
func (p *Prometheus) Alerts(ctx context.Context) ([]PromAlert, error) {
	var answer struct {
		Data struct {
			Alerts []PromAlert `json:"alerts"`
		} `json:"data"`
	}
	err := p.get(ctx, "/api/v1/alerts", &answer)
	return answer.Data.Alerts, err
}

// get decodes an endpoint's body into v, or discards it if v is nil.
func (p *Prometheus) get(ctx context.Context, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask Prometheus: %w", err)
	}
	defer resp.Body.Close()
	path, _, _ = strings.Cut(path, "?")
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask Prometheus: %s: %s", path, resp.Status)
	}
	if v == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("ask Prometheus: %s: %w", path, err)
	}
	return nil
}
