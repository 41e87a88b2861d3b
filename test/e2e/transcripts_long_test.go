//go:build lab && long && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// shadow is an outage for which the test records a transcript. Its member has its own servers.
type shadow struct {
	name       string
	begin, end func(*shadow) error
	// producing is true if Kafka accepts records during the outage.
	producing bool
	// stores gives the member a Redis and a Postgres.
	stores bool
	// named are the words that the output of `connector holds` must contain from the tenth second on.
	named []string
	// components are the components that /health must report as degraded, down or unknown from the tenth second on. For
	// the components in silent the report may take a minute, because their first request must time out.
	components, silent []string
	reasons            []string // reasons of the holds after a minute
	late               []string // reasons of the holds from the fifth minute on, if they differ
	breakers           []string // dependencies whose breakers are open after a minute
	alerts             []string // alerts that may fire besides SluiceHeldByOutage

	s        *scene
	m        *member
	prom     *lab.Prometheus
	kafka    *lab.Kafka
	redis    *lab.Redis
	postgres *lab.Postgres
	began    time.Time
	text     strings.Builder
}

// shadows are the scenarios of TestOutageTranscripts.
func shadows() []*shadow {
	return []*shadow{
		{
			name: "Kafka stopped", named: []string{"kafka"}, components: []string{"kafka"}, reasons: []string{"kafka_down"}, breakers: []string{"kafka"},
			alerts: []string{"SluiceBreakerOpen", "SluiceLagUnchecked"},
			begin:  func(o *shadow) error { return o.kafka.Stop() },
			end:    func(o *shadow) error { return o.kafka.Start(o.s.ctx) },
		},
		{
			name: "MinIO stopped", named: []string{"store"}, components: []string{"store"}, reasons: []string{"store_down"}, breakers: []string{"store"},
			alerts: []string{"SluiceBreakerOpen", "SluiceOperationsLogStale", "SluicePausedMostly"}, producing: true,
			begin: func(o *shadow) error { return o.s.minio.Stop() },
			end:   func(o *shadow) error { return o.s.minio.Start(o.s.ctx) },
		},
		{
			name: "Kafka and MinIO frozen", named: []string{"kafka", "store"}, silent: []string{"kafka", "store"},
			reasons: []string{"kafka_down"}, late: []string{"store_down"}, breakers: []string{"kafka"},
			alerts: []string{"SluiceBreakerOpen", "SluiceLagUnchecked", "SluiceOperationsLogStale"},
			begin: func(o *shadow) error {
				if err := o.s.minio.Pause(); err != nil {
					return err
				}
				o.s.produce(1000)
				o.sleep(2 * time.Second) // the member reads the records and waits for the store
				return o.kafka.Pause()
			},
			end: func(o *shadow) error { return errors.Join(o.kafka.Resume(), o.s.minio.Resume()) },
		},
		{
			name: "Redis and Postgres killed", named: []string{"postgres"}, components: []string{"fingerprints", "members"},
			reasons: []string{"fingerprints_unavailable"}, breakers: []string{"postgres"},
			alerts: []string{"SluiceBreakerOpen", "SluiceMembersUnknown", "SluicePausedMostly"}, producing: true, stores: true,
			begin: func(o *shadow) error { return errors.Join(o.redis.Kill(), o.postgres.Kill()) },
			end:   func(o *shadow) error { return errors.Join(o.redis.Start(o.s.ctx), o.postgres.Start(o.s.ctx)) },
		},
	}
}

// TestOutageTranscripts causes outages of ten minutes and records the output of `connector holds`, /health, the log and
// Prometheus after 10 s, 1, 5 and 10 minutes, and after the outage. The member has the default timeouts. It must name
// the server that fails, stay alive, fill neither log nor memory, cause no unexpected alert, and lose or repeat no
// record.
//
// E2E_OUTAGE is another length of the outage. E2E_TRANSCRIPT names a file that receives the transcript.
func TestOutageTranscripts(t *testing.T) {
	lasts := 10 * time.Minute
	if text := os.Getenv("E2E_OUTAGE"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("E2E_OUTAGE: %v", err)
		}
	}
	var mu sync.Mutex
	var all strings.Builder
	t.Cleanup(func() {
		path := os.Getenv("E2E_TRANSCRIPT")
		if path == "" {
			return
		}
		if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
			t.Error(err)
		}
	})
	for _, o := range shadows() {
		t.Run(strings.ReplaceAll(o.name, " ", ""), func(t *testing.T) {
			t.Parallel()
			defer func() {
				t.Log("\n" + o.text.String())
				mu.Lock()
				defer mu.Unlock()
				all.WriteString(o.text.String())
			}()
			o.play(t, lasts)
		})
	}
}

func (o *shadow) play(t *testing.T, lasts time.Duration) {
	t.Helper()
	o.open(t)
	s := o.s
	s.produce(2000)
	s.awaitRows(2000)
	o.m.awaitReady()
	plain := o.more(2000)
	endStream := func() {}
	if o.producing {
		endStream = s.stream(50)
		s.produced = 200_000 // far above the numbers of the records that stream produces
	}
	s.produce(1000) // these records are not committed when the outage begins
	if err := o.begin(o); err != nil {
		t.Fatal(err)
	}
	o.began = time.Now()
	_, _ = fmt.Fprintf(&o.text, "\n### %s for %v\n\n| after | `connector holds` | /health | log, WARN and above | Prometheus |\n|---|---|---|---|---|\n", o.name, lasts)
	moments := slices.DeleteFunc([]time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, lasts}, func(at time.Duration) bool { return at > lasts })
	for _, at := range slices.Compact(moments) {
		o.sleep(at - time.Since(o.began))
		x := o.look(at)
		o.judge(at, x)
		if o.stores {
			// The records of the second topic have no configured identity, so their table does not need the store of
			// fingerprints and must continue.
			plain = o.more(plain + 200)
		}
	}
	if err := o.end(o); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	s.produce(2000)
	o.awaitOver()
	endStream()
	o.sleep(15 * time.Second) // Prometheus scrapes the member again in this time
	o.row("after", o.glance())
	s.awaitRows(s.ledger.Len())
	_, _ = fmt.Fprintf(&o.text, "\nAll is well %v after the end; %d records.\n", time.Since(ended).Round(time.Second), s.ledger.Len())
	_, peak, err := o.m.Resident()
	if err != nil || peak > mostResident && bounded() {
		t.Errorf("%d MiB resident, %v", peak>>20, err)
	}
	if n := s.letters(); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	o.m.drain()
	s.check("--readers", "deltalake")
}

// open starts the servers and the member.
func (o *shadow) open(t *testing.T) {
	t.Helper()
	s := newSceneAt(t)
	o.s, s.orders.Odd = s, 0
	start := func(name string) string {
		dir, err := folder(s.name + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	o.kafka, err = lab.StartKafka(s.ctx, lab.KafkaOptions{Dir: start("kafka"), Version: os.Getenv("E2E_KAFKA")})
	fail(err)
	t.Cleanup(func() { _ = o.kafka.Kill() })
	s.addrs = []string{o.kafka.Addr}
	fail(o.kafka.CreateTopic(s.ctx, s.name, 4, nil))
	fail(o.kafka.CreateTopic(s.ctx, s.name+"-plain", 1, nil))
	s.minio, err = lab.StartMinIO(s.ctx, start("minio"))
	fail(err)
	t.Cleanup(func() { _ = s.minio.Kill() })
	s.bucket, err = lab.CreateBucket(s.ctx, s.minio.Endpoint, "own")
	fail(err)
	s.log.Store = s.bucket
	own, more := "", ""
	if o.stores {
		o.redis, err = lab.StartRedis(s.ctx, start("redis"))
		fail(err)
		t.Cleanup(func() { _ = o.redis.Kill() })
		o.postgres, err = lab.StartPostgres(s.ctx, start("postgres"))
		fail(err)
		t.Cleanup(func() { _ = o.postgres.Stop() })
		database := s.dir + "/database-url"
		fail(os.WriteFile(database, []byte(o.postgres.URL), 0o600))
		registry := s.dir + "/registry-url"
		fail(os.WriteFile(registry, []byte(o.redis.URL), 0o600))
		own = "identity: {by: 'field:order_id'}"
		more = fmt.Sprintf("\nfingerprints: {store: postgres, url_file: %q}\nmembers: {store: redis, url_file: %q}", database, registry)
	}
	o.m = s.start(alsoReads(s.name+"-plain: {}"), func(c *settings) {
		c.own, c.memory, c.commit = own, limited, "{every: 5s}"
		c.paced, c.patient, c.timeout = "session: 30s, offset_commit_interval: 10s", outagePatient+more, outageTimeout
	})
	root, err := lab.Root()
	fail(err)
	o.prom, err = lab.StartPrometheus(s.ctx, start("prometheus"), strings.TrimPrefix(o.m.url, "http://"), root+"/deploy/alerts.yaml")
	fail(err)
	t.Cleanup(func() { _ = o.prom.Stop() })
}

// more produces records to the second topic until it has had to records in all, and waits until each is a row of its
// table. It returns to.
func (o *shadow) more(to int64) int64 {
	s := o.s
	s.t.Helper()
	at := tablelog.Log{Store: s.bucket, Table: s.name + "/" + s.name + "-plain"}
	rows := func() int64 {
		commits, err := at.Read(s.ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		return tablelog.Rows(commits)
	}
	before := rows()
	p := gen.Producer{Brokers: s.addrs, Topic: s.name + "-plain", Orders: s.orders, From: before, Records: to - before, Codec: "none"}
	if err := p.Run(s.ctx, nil); err != nil {
		s.t.Fatal(err)
	}
	s.await("the table of the second topic has the records", func() (bool, error) { return rows() >= to, nil })
	return to
}

func (o *shadow) sleep(d time.Duration) {
	o.s.t.Helper()
	select {
	case <-time.After(d):
	case <-o.s.ctx.Done():
		o.s.t.Fatal(o.s.ctx.Err())
	}
}

// awaitOver waits until the member is ready and holds no claim. That may take minutes: a breaker sends a probe only
// each minute, and a frozen broker must first be elected again.
func (o *shadow) awaitOver() {
	o.s.t.Helper()
	ctx, cancel := context.WithTimeout(o.s.ctx, 5*time.Minute)
	defer cancel()
	var last fullReport
	err := lab.Until(ctx, func() (done bool, err error) {
		last, _, err = o.m.full()
		return err == nil && last.Ready && len(last.Holds) == 0 && last.Status == "ok", err
	})
	if err != nil {
		o.s.t.Fatalf("wait until status ok without holds: %v: %+v: %s", err, last, o.m.Tail())
	}
	if x := o.glance(); x.code != 0 {
		o.s.t.Errorf("after the outage `connector holds` has exit code %d: %s", x.code, x.holds)
	}
}

// judge adds a view to the transcript and fails the test if the view differs from what the documentation promises about
// an outage.
func (o *shadow) judge(at time.Duration, x seen) {
	t := o.s.t
	t.Helper()
	o.row(at.String(), x)
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s, %v: "+format, append([]any{o.name, at}, args...)...)
	}
	if x.took > 15*time.Second {
		fail("`connector holds` took %v, it has 10 s and the start of a process", x.took)
	}
	if x.code != 1 && (x.code != 3 || at >= time.Minute) {
		fail("`connector holds` has exit code %d", x.code)
	}
	for _, word := range o.named {
		if !strings.Contains(strings.ToLower(x.holds), word) {
			fail("`connector holds` does not name %s: %s", word, x.holds)
		}
	}
	want := o.components
	if at >= time.Minute {
		want = append(slices.Clone(want), o.silent...)
	}
	for _, name := range want {
		if c := x.report.Components[name]; !slices.Contains([]string{"degraded", "down", "unknown"}, c.Status) || c.Reason == "" {
			fail("/health has for %s: status %q, reason %q", name, c.Status, c.Reason)
		}
	}
	if x.live != http.StatusOK {
		fail("/health/live answers %d", x.live)
	}
	if n := len(x.loud); n > 0 && x.lines > 12+10*int(at/time.Minute) {
		fail("%d lines at WARN and above", x.lines)
	}
	for what, n := range x.limited {
		// The member logs such a line at once, after a minute, and then every five minutes.
		if most := 2 + int((at+4*time.Minute)/(5*time.Minute)); n > most {
			fail("%d lines of %s, want at most %d", n, what, most)
		}
	}
	if at >= time.Minute {
		o.judgeHolds(at, x, fail)
	}
	o.judgeAlerts(at, x, fail)
}

func (o *shadow) judgeHolds(at time.Duration, x seen, fail func(string, ...any)) {
	o.s.t.Helper()
	want := o.heldFor(at)
	for _, reason := range want {
		if x.held[reason] == 0 {
			fail("Prometheus has no partition that is held for %s: %v", reason, x.held)
		}
		if !strings.Contains(x.holds, reason) {
			fail("`connector holds` does not show %s: %s", reason, x.holds)
		}
	}
	for reason := range x.held {
		if !slices.Contains(want, reason) {
			fail("unexpected hold for %s", reason)
		}
	}
	for _, name := range o.breakers {
		if x.breakers[name] == 0 {
			fail("the breaker before %s is closed: %v", name, x.breakers)
		}
	}
}

// judgeAlerts expects no critical or other unexpected alert, and from five minutes on one pending or firing alert
// SluiceHeldByOutage for each reason.
func (o *shadow) judgeAlerts(at time.Duration, x seen, fail func(string, ...any)) {
	o.s.t.Helper()
	waits := 0
	for _, a := range x.alerts {
		name, firing := a.Labels["alertname"], a.State == "firing"
		if firing && a.Labels["severity"] == "critical" {
			fail("critical alert %s fires", name)
		}
		if name == "SluiceHeldByOutage" && (firing || at < 7*time.Minute) {
			waits++
		}
		if firing && name != "SluiceHeldByOutage" && !slices.Contains(o.alerts, name) {
			fail("unexpected alert %s fires", name)
		}
	}
	if want := o.heldFor(at); at >= 5*time.Minute && waits != len(want) {
		fail("%d alerts SluiceHeldByOutage, want one for each of %v", waits, want)
	}
}

// heldFor returns the reasons of the holds that are expected when the outage has lasted for the time at.
func (o *shadow) heldFor(at time.Duration) []string {
	if at >= 5*time.Minute && o.late != nil {
		return o.late
	}
	return o.reasons
}

// row adds a row to the transcript: at, which is the time since the outage began or a word for it, and what the
// operator saw then.
func (o *shadow) row(at string, x seen) {
	cell := func(s string) string {
		return strings.NewReplacer("|", "\\|", "\n", "<br>").Replace(strings.TrimSpace(s))
	}
	var health strings.Builder
	_, _ = fmt.Fprintf(&health, "%d, %s", x.status, x.report.Status)
	if x.report.Reason != "" {
		health.WriteString(": " + cut(o.plain(x.report.Reason), 120))
	}
	for _, name := range slices.Sorted(maps.Keys(x.report.Components)) {
		if c := x.report.Components[name]; c.Status != "ok" {
			health.WriteString("\n" + name + " " + c.Status + ": " + cut(o.plain(c.Reason), 100))
		}
	}
	var log strings.Builder
	_, _ = fmt.Fprintf(&log, "%d lines", x.lines)
	for _, msg := range slices.Sorted(maps.Keys(x.loud)) {
		_, _ = fmt.Fprintf(&log, "\n%d× %s", x.loud[msg], msg)
	}
	_, _ = fmt.Fprintf(&o.text, "| %s | exit %d, %.1f s<br>%s | %s | %s | %s |\n", at, x.code, x.took.Seconds(), cell(short(x.holds)), cell(health.String()), cell(log.String()),
		cell(o.plain(strings.Join(x.prom, "\n"))))
}

// plain replaces generated topics and addresses with names that an operator would choose.
func (o *shadow) plain(text string) string {
	return strings.NewReplacer(
		o.s.name, "orders", o.m.url, "http://MEMBER", o.kafka.Addr, "KAFKA", strings.TrimPrefix(o.s.minio.Endpoint, "http://"), "MINIO",
	).Replace(text)
}

// rowOfHolds matches a partition in the output of `connector holds`.
var rowOfHolds = regexp.MustCompile(`^\S+-\d+ +([a-z_]+) +(\S+) +\d+ +\S+$`)

// short returns the output of `connector holds` with one line for all partitions that are held for the same reason.
func short(text string) string {
	var kept []string
	partitions := map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := rowOfHolds.FindStringSubmatch(line); m != nil {
			if partitions[m[1]]++; partitions[m[1]] == 1 {
				kept = append(kept, m[1])
			}
		} else if line != "" && !strings.HasPrefix(line, "PARTITION") && !strings.HasPrefix(line, "ends by: ") {
			kept = append(kept, cut(line, 150))
		}
	}
	for i, line := range kept {
		if n := partitions[line]; n > 0 {
			kept[i] = fmt.Sprintf("%s: %d partitions", line, n)
		}
	}
	return strings.Join(kept, "\n")
}

func cut(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}
