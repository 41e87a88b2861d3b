package ops_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/health"
	"sluice/health/ops"
)

// hush is part of every secret in the texts below.
const hush = "hush7f3a"

// secrets are error texts of drivers and clients that quote credentials.
var secrets = []string{
	"cannot parse `postgres://sluice:" + hush + "@db.example:5432/fingerprints?sslmode=require`: failed",
	"dial redis://:" + hush + "@redis:6379/0: connection refused",
	"cannot parse `host=db user=sluice password=" + hush + " dbname=x`",
	"cannot parse `host=db password = '" + hush + " with a blank' dbname=x`",
	`{"password":"` + hush + `","user":"x"}`,
	"config {User:sluice Password:" + hush + " Host:db}",
	"GET https://bucket.s3.amazonaws.com/k?X-Amz-Credential=" + hush + "&X-Amz-Signature=" + hush + "&x=1: 403",
	"GET https://account.blob.example/k?sv=2024&sig=" + hush + "&se=1: 403",
	"PUT /k: 400: AWS_SECRET_ACCESS_KEY=" + hush + " AWS_SESSION_TOKEN=" + hush,
	"request had Authorization: Bearer " + hush + ".eyJh: refused",
	"secret_key: nothing, secretKey=" + hush,
	"GET https://sluice:p/" + hush + "@s3.example/bucket: no such host",
}

// fill sets every string in a value to text, except names, and gives every list one element.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		if v.Type() != reflect.TypeFor[*time.Location]() {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), text)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key := reflect.New(v.Type().Key()).Elem()
		fill(key, text)
		v.SetMapIndex(key, reflect.New(v.Type().Elem()).Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for _, field := range v.Fields() {
			fill(field, text)
		}
	case reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64:
	default:
		panic(fmt.Sprintf("fill cannot fill %v yet", v.Type()))
	}
}

// TestNothingSecretIsTold: no field of any response contains a secret that an error of a dependency has, and no text is
// long.
func TestNothingSecretIsTold(t *testing.T) {
	c := &connector{}
	base, _ := start(t, c)
	for _, secret := range secrets {
		var report health.Report
		text := secret + strings.Repeat(" and so on", 300)
		fill(reflect.ValueOf(&report).Elem(), text)
		for _, name := range []string{"kafka", "kafka group", "store", "postgres", "dead_letters", "operations_log"} {
			d := report.Dependencies[0]
			d.Name = name
			report.Dependencies = append(report.Dependencies, d)
		}
		c.set(func(c *connector) { c.report, c.dead = report, fmt.Errorf("%s", text) })
		for _, address := range addresses {
			_, body, _ := request(t, http.MethodGet, base+address)
			if i := strings.Index(body, hush); i >= 0 {
				t.Errorf("%s shows a secret: %s", address, body[max(0, i-100):min(len(body), i+50)])
			}
			if strings.Contains(body, strings.Repeat(" and so on", 250)) {
				t.Errorf("%s is long: %d bytes", address, len(body))
			}
			if !json.Valid([]byte(body)) {
				t.Errorf("%s: no JSON: %s", address, body)
			}
		}
	}
}

// TestWhatIsToldStays: texts without secrets stay unchanged, also if they have unusual characters.
func TestWhatIsToldStays(t *testing.T) {
	c := &connector{}
	base, _ := start(t, c)
	for _, text := range []string{
		"the self-test does not pass: PUT answers 501", `a "quoted" path C:\lake and <tags> & more`, "snow ☃ and \x01 control", "back\\slash\\",
		"token expired", "invalid password", "s3://bucket/prefix: NoSuchBucket", "ann@example.org paused it", "\\\"", "\xff\xfe",
		"Partition 0 lag (10500) exceeds maximum (10000)", "read tcp [::1]:9092->[::1]:4: i/o timeout", strings.Repeat("x", 2048),
	} {
		c.set(func(c *connector) {
			c.report = health.Report{Holds: []health.Hold{{Topic: "t", Reason: "poison", Detail: text}}}
		})
		_, body, _ := request(t, http.MethodGet, base+"/health")
		var got struct{ Holds []health.Hold }
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if want := strings.ToValidUTF8(text, "\ufffd"); got.Holds[0].Detail != want && text != "\xff\xfe" {
			t.Errorf("%q became %q", text, got.Holds[0].Detail)
		}
	}
}

// TestLongTexts: a long text is shortened. No part of a secret remains, even if the text is shortened within the
// secret.
func TestLongTexts(t *testing.T) {
	c := &connector{}
	base, _ := start(t, c)
	for _, text := range []string{
		strings.Repeat(" and so on", 10_000),
		strings.Repeat("x", 8180) + "postgres://sluice:" + hush + "@db", // the limit falls within the address
		strings.Repeat("x ", 4090) + "postgres://sluice:" + hush + "@db",
		"redis://" + strings.Repeat(hush, 10_000) + "@db",
		strings.Repeat("☃", 5000),
	} {
		c.set(func(c *connector) { c.dead = fmt.Errorf("%s", text) })
		code, body, _ := request(t, http.MethodGet, base+"/health/live")
		if code != 503 || len(body) > 2200 || strings.Contains(body, hush) || !json.Valid([]byte(body)) || strings.ContainsRune(body, '\ufffd') {
			t.Errorf("%d, %d bytes: %s", code, len(body), body)
		}
	}
}

// BenchmarkLargeReport asks for the health of a member with 5000 partitions, all of them held.
func BenchmarkLargeReport(b *testing.B) {
	var report health.Report
	for id := range int32(5000) {
		report.Partitions = append(report.Partitions, health.Partition{Topic: "orders", ID: id, Position: 1, End: 2, Table: "bronze/orders", Verdict: health.VerdictHeld})
		report.Holds = append(report.Holds, health.Hold{
			Topic: "orders", Partition: id, Reason: "store_down", Detail: "PUT https://s3.example/bucket/key: dial tcp 10.0.0.1:443: i/o timeout", Offset: 1,
		})
	}
	s := ops.NewServer("127.0.0.1:0", func() health.Report { return report }, func() error { return nil }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	addr, err := s.Listen(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() { _ = s.Run(ctx) }()
	for b.Loop() {
		resp, err := http.Get("http://" + addr.String() + "/health")
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
		b.SetBytes(n)
	}
}
