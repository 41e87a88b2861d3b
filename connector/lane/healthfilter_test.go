package lane

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/connector/plan"
)

// countedBy returns the value of a counter.
func countedBy(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func headers(texts ...string) (all []connector.Header) {
	for i := 0; i < len(texts); i += 2 {
		all = append(all, connector.Header{Key: texts[i], Value: []byte(texts[i+1])})
	}
	return all
}

// TestHealthFilter_Drops: a record is dropped as a health check only if its header is exactly right, and, where the
// filter has a secret, only if the header proves the secret.
func TestHealthFilter_Drops(t *testing.T) {
	const secret = "s3cret"
	for _, c := range []struct {
		name     string
		headers  []connector.Header
		claims   bool
		unproven bool // where the filter requires a secret
	}{
		{name: "no headers"},
		{name: "other headers", headers: headers("trace", "TRUE", connector.HealthSecretHeader, secret)},
		{name: "the header", headers: headers("trace", "1", "HEALTHCHECK", "TRUE"), claims: true, unproven: true},
		{name: "another case of the name", headers: headers("healthcheck", "TRUE")},
		{name: "another case of the value", headers: headers("HEALTHCHECK", "true")},
		{name: "another value", headers: headers("HEALTHCHECK", "FALSE")},
		{name: "a longer value", headers: headers("HEALTHCHECK", "TRUE ")},
		{name: "no value", headers: []connector.Header{{Key: "HEALTHCHECK"}}},
		{name: "the last one counts", headers: headers("HEALTHCHECK", "TRUE", "HEALTHCHECK", "FALSE")},
		{name: "the last one counts, again", headers: headers("HEALTHCHECK", "FALSE", "HEALTHCHECK", "TRUE"), claims: true, unproven: true},
		{name: "with the secret", headers: headers("HEALTHCHECK", "TRUE", connector.HealthSecretHeader, secret), claims: true},
		{name: "with another secret", headers: headers("HEALTHCHECK", "TRUE", connector.HealthSecretHeader, "s3creT"), claims: true, unproven: true},
		{name: "with a part of it", headers: headers("HEALTHCHECK", "TRUE", connector.HealthSecretHeader, "s3"), claims: true, unproven: true},
		{name: "with an empty one", headers: headers("HEALTHCHECK", "TRUE", connector.HealthSecretHeader, ""), claims: true, unproven: true},
		{name: "the last secret counts", headers: headers(connector.HealthSecretHeader, secret, "HEALTHCHECK", "TRUE", connector.HealthSecretHeader, "x"), claims: true, unproven: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &connector.Record{Headers: c.headers}
			if got := connector.ClaimsHealthCheck(c.headers); got != c.claims {
				t.Errorf("claims to be one: %v", got)
			}
			m := NewMetrics(nil)
			quiet := slog.New(slog.DiscardHandler)
			if got := NewHealthFilter("open", connector.HealthRecords{Drop: true}, quiet, m).drops(connectortest.Partition(0), r); got != c.claims {
				t.Errorf("dropped without a secret: %v", got)
			}
			asked := NewHealthFilter("orders", connector.HealthRecords{Drop: true, Secret: func() string { return secret }}, quiet, m)
			if got, want := asked.drops(connectortest.Partition(0), r), c.claims && !c.unproven; got != want {
				t.Errorf("dropped where a secret is asked for: %v", got)
			}
			if got := countedBy(t, m.healthUnproven.WithLabelValues("orders")); (got == 1) != (c.claims && c.unproven) {
				t.Errorf("counted %v without the secret", got)
			}
			none := NewHealthFilter("none", connector.HealthRecords{Drop: true, Secret: func() string { return "" }}, quiet, m)
			if none.drops(connectortest.Partition(0), r) {
				t.Error("dropped without a configured secret")
			}
		})
	}
	if NewHealthFilter("orders", connector.HealthRecords{}, nil, nil) != nil {
		t.Error("a filter that drops nothing")
	}
}

// TestHealthFilter_Log: each dropped record is counted and has a DEBUG line. At most once a minute there is also an
// INFO line, so that an operator finds a producer that marks all of its records as health checks.
func TestHealthFilter_Log(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		reg := prometheus.NewRegistry()
		m := NewMetrics(reg)
		f := NewHealthFilter("orders", connector.HealthRecords{Drop: true, Secret: func() string { return "right" }}, logger, m)
		check := headers("HEALTHCHECK", "TRUE", connector.HealthSecretHeader, "right", "private-name", "private-value")
		claim := headers("HEALTHCHECK", "TRUE", connector.HealthSecretHeader, "wrong")
		for o := range int64(5) {
			f.drops(connectortest.Partition(3), &connector.Record{Offset: o, Headers: check, Key: []byte("private-key"), Value: []byte("private-value")})
			f.drops(connectortest.Partition(3), &connector.Record{Offset: 10 + o, Headers: claim})
		}
		time.Sleep(healthLogInterval)
		f.drops(connectortest.Partition(3), &connector.Record{Offset: 5, Headers: check})
		f.drops(connectortest.Partition(3), &connector.Record{Offset: 15, Headers: claim})
		var got []string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ") // leaves the time out
			if !strings.Contains(line, "level=DEBUG") {
				got = append(got, line)
			}
		}
		want := []string{
			`level=INFO msg="health-check records are dropped" topic=orders partition=3 offset=0 left_out=0`,
			`level=INFO msg="a health-check record without the secret is an ordinary record" topic=orders partition=3 offset=10 left_out=0`,
			`level=INFO msg="health-check records are dropped" topic=orders partition=3 offset=5 left_out=4`,
			`level=INFO msg="a health-check record without the secret is an ordinary record" topic=orders partition=3 offset=15 left_out=4`,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("lines above DEBUG (-want +got):\n%s", d)
		}
		const seed = `level=DEBUG msg="Received a healthcheck message. Discarding message" topic=orders partition=3 offset=`
		if n := strings.Count(out.String(), seed); n != 6 {
			t.Errorf("%d DEBUG lines, want 6\n%s", n, out.String())
		}
		for _, secret := range []string{"right", "wrong", "private"} {
			if strings.Contains(out.String(), secret) {
				t.Errorf("a line holds %q", secret)
			}
		}
		if n := countedBy(t, m.health.WithLabelValues("orders")); n != 6 {
			t.Errorf("counted %v, want 6", n)
		}
	})
}

// BenchmarkHealthFilter measures the cost of the filter per record. A record without headers does not reach the filter.
func BenchmarkHealthFilter(b *testing.B) {
	f := NewHealthFilter("orders", connector.HealthRecords{Drop: true}, slog.New(slog.DiscardHandler), NewMetrics(nil))
	blk := &Block{Health: f, Partition: connectortest.Partition(0)}
	for name, h := range map[string][]connector.Header{
		"no headers": nil,
		"one":        headers("trace", "0123456789abcdef"),
		"ten": headers("a", "1", "b", "2", "c", "3", "d", "4", "content-type", "5", "f", "6", "g", "7", "h", "8",
			"correlation-id", "9", "traceparent", "10"),
	} {
		b.Run(name, func(b *testing.B) {
			r := &connector.Record{Headers: h}
			n := 0
			for b.Loop() {
				if len(r.Headers) > 0 && blk.Health != nil && blk.Health.drops(blk.Partition, r) {
					n++
				}
			}
			if n > 0 {
				b.Fatal("dropped")
			}
		})
	}
}

// TestDropped_CountedByPlan: a plan counts exactly the dropped health checks before the positions that it sets, also if
// a claim ends at a bad record. The lane keeps ranges of offsets with a count each, not every offset.
func TestDropped_CountedByPlan(t *testing.T) {
	a, b := connectortest.Partition(0), connectortest.Partition(1)
	var o openPart
	for at := range int64(1000) {
		o.drop(a, 1, at)
		o.drop(b, 2, at)
	}
	if len(o.dropped) != 2 {
		t.Errorf("%d entries for two claims", len(o.dropped))
	}
	o.candidates = append(o.candidates, plan.Candidate{Partition: a, Session: 1, Offset: 1000})
	o.drop(a, 1, 1001)
	o.drop(b, 2, 1001)
	o.drop(b, 3, 5) // of a later session
	for _, c := range []struct {
		name string
		next map[connector.Partition]plan.Span
		want map[connector.Partition]int64
	}{
		{"all", map[connector.Partition]plan.Span{a: {Session: 1, Next: 1002}, b: {Session: 2, Next: 1002}}, map[connector.Partition]int64{a: 1001, b: 1001}},
		{"truncated at the bad record", map[connector.Partition]plan.Span{a: {Session: 1, Next: 1000}, b: {Session: 2, Next: 1002}}, map[connector.Partition]int64{a: 1000, b: 1001}},
		{"a lost claim", map[connector.Partition]plan.Span{a: {Session: 1, Next: 1002}}, map[connector.Partition]int64{a: 1001}},
		{"another life", map[connector.Partition]plan.Span{b: {Session: 3, Next: 9}}, map[connector.Partition]int64{b: 1}},
	} {
		if d := cmp.Diff(c.want, plan.Explained(o.dropped, c.next)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}
