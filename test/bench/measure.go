package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sluice/test/gen"
	"sluice/test/lab"
)

// sluice returns a function that runs a connector with the given memory.limit, until the table has the whole topic, and
// returns the figures of the run.
func (b *bench) sluice(binary, limit string) func(context.Context, string) (result, error) {
	return func(ctx context.Context, table string) (result, error) { return b.connector(ctx, binary, limit, table) }
}

func (b *bench) connector(ctx context.Context, binary, limit, table string) (result, error) {
	listen, err := lab.FreeAddr()
	if err != nil {
		return result{}, err
	}
	config := filepath.Join(b.dir, table+".yaml")
	text := fmt.Sprintf(`
pipeline: %[1]s
kafka: {brokers: [%[2]s]}
storage: {url: s3://%[3]s/%[1]s, s3: {endpoint: %[4]s, region: %[5]s, path_style: true}}
defaults: {schema: %[6]q}
topics: {%[7]s: {}}
health: {listen: %[8]q}
ops: {listen: ""}
memory: {limit: %[9]s}
`, table, b.kafka.Addr, b.bucket.Name, b.minio.Endpoint, lab.Region, gen.DDL, topic, listen, limit)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return result{}, err
	}
	env := []string{"AWS_ACCESS_KEY_ID=" + lab.AccessKey, "AWS_SECRET_ACCESS_KEY=" + lab.SecretKey}
	return b.measure(ctx, table, table+"/"+topic, "http://"+listen+"/metrics", env, binary, "run", "--until-current", "--config", config)
}

// peer runs and measures the Python pipeline.
func (b *bench) peer(ctx context.Context, table string) (result, error) {
	python, err := lab.Install(ctx, "readers")
	if err != nil {
		return result{}, err
	}
	root, err := lab.Root()
	if err != nil {
		return result{}, err
	}
	env := []string{"AWS_ACCESS_KEY_ID=" + lab.AccessKey, "AWS_SECRET_ACCESS_KEY=" + lab.SecretKey, "AWS_REGION=" + lab.Region}
	return b.measure(ctx, table, table, "", env, python, filepath.Join(root, "test", "bench", "peer.py"),
		b.kafka.Addr, topic, "s3://"+b.bucket.Name+"/"+table, b.minio.Endpoint)
}

// measure runs a process to its end and verifies the table that it wrote. metrics is the URL at which a Go process
// exports its allocations, or "" for other processes.
func (b *bench) measure(ctx context.Context, name, table, metrics string, env []string, argv ...string) (r result, err error) {
	requests, err := b.requests(ctx)
	if err != nil {
		return r, err
	}
	r.broker, r.store = -cpuOf(b.kafka.Pid()), -cpuOf(b.minio.Pid())
	begin := time.Now()
	p, err := lab.StartProcess(name, filepath.Join(b.dir, name+".log"), env, argv...)
	if err != nil {
		return r, err
	}
	defer func() { _ = p.Kill() }()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for p.Running() {
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-p.Done():
		case <-tick.C:
			if metrics == "" {
				continue
			}
			// The last successful scrape counts, because the process ends between two scrapes: its allocations are
			// divided by the records that it had read then.
			m, err := scrape(ctx, metrics)
			if read := m["sluice_records_read_total"]; err == nil && read > 0 {
				r.allocs, r.memory = m["go_memstats_mallocs_total"]/read, m["go_memstats_alloc_bytes_total"]/read
			}
		}
	}
	r.wall = time.Since(begin)
	if code := p.ExitCode(); code != 0 {
		return r, fmt.Errorf("exit code %d: %s", code, p.Tail())
	}
	user, system := p.Usage()
	r.cpu, r.rss = user+system, p.PeakRSS()
	r.broker += cpuOf(b.kafka.Pid())
	r.store += cpuOf(b.minio.Pid())
	after, err := b.requests(ctx)
	if err != nil {
		return r, err
	}
	r.requests = after - requests
	if _, r.written, err = b.bucket.Size(ctx, table+"/"); err != nil {
		return r, err
	}
	out, err := lab.Python(ctx, "bench/verify.py", "s3://"+b.bucket.Name+"/"+table, b.minio.Endpoint,
		strconv.FormatInt(b.records, 10), strconv.FormatInt(b.quantity, 10))
	if err != nil {
		return r, fmt.Errorf("the table is not what was produced: %w: %s", err, out)
	}
	return r, nil
}

// requests returns how many S3 requests the server has answered.
func (b *bench) requests(ctx context.Context) (int64, error) {
	m, err := scrape(ctx, b.minio.Endpoint+"/minio/metrics/v3/api/requests")
	if err != nil {
		return 0, err
	}
	return int64(m["minio_api_requests_total"]), nil
}

// scrape returns a server's metrics, each summed over its labels.
func scrape(ctx context.Context, url string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: %s: %s", url, resp.Status)
	}
	sums := make(map[string]float64)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		space := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || space < 0 {
			continue
		}
		name, _, _ := strings.Cut(line[:space], "{")
		if value, err := strconv.ParseFloat(line[space+1:], 64); err == nil {
			sums[name] += value
		}
	}
	return sums, lines.Err()
}

// cpuOf returns the CPU time of a running process.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The process name is in brackets and may have spaces. After it, user and system time are fields 14 and 15 of the
	// line.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	const perSecond = 100 // USER_HZ, which is 100 on every Linux that Go supports
	return time.Duration(ticks) * time.Second / perSecond
}
