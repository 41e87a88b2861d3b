package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/health"
	"sluice/health/membership"
	"sluice/health/membership/redis"
	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/reliability/deadletter"
	"sluice/secure/tokens"
	"sluice/sink/opslog"
	"sluice/test/certs"
)

// serve runs the server on its address until the test ends.
func (w *world) serve() string {
	w.T.Helper()
	address, err := w.s.Listen(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(w.T.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.s.Run(ctx, ctx.Done()) }()
	w.T.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.T.Error(err)
		}
	})
	return address.String()
}

// TestServer_SlowClients: while connections are open that send nothing, or half a header, other requests are answered.
func TestServer_SlowClients(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	address := w.serve()
	var d net.Dialer
	for i := range 1000 {
		c, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if i%2 == 0 {
			_, _ = c.Write([]byte("GET /internal/v1/whoami HTTP/1.1\r\nHost: local")) // it may be closed already
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+prefix+"whoami", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secretOf("viewer"))
		got, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		_ = got.Body.Close()
		if err != nil || got.StatusCode != http.StatusOK || strings.Contains(string(body), `"name": "viewer"`) != (method == http.MethodGet) {
			t.Errorf("%s: %d %s %v", method, got.StatusCode, body, err)
		}
	}
}

// TestServer_TLS: the API answers over TLS, and to the names in the certificate only.
func TestServer_TLS(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	ca := certs.NewCA(t, "authority")
	pair := ca.Issue(t, certs.Leaf{Name: "ops", Hosts: []string{"ops.example.com", "127.0.0.1"}})
	dir := t.TempDir()
	for name, content := range map[string]string{
		"cert.pem": string(pair.Cert), "key.pem": string(pair.Key),
		"web.yaml": "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nhttp_server_config: {headers: {Strict-Transport-Security: max-age=60}}\nrate_limit: {burst: 3, interval: 1h}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.Lake = w.As("tokens_file:", fmt.Sprintf("web_config_file: %q, tokens_file:", filepath.Join(dir, "web.yaml")))
	w.open()
	address := w.serve()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
	for _, c := range []struct {
		host string
		want int
	}{{"", 200}, {"ops.example.com", 200}, {"evil.example.com", 421}, {"ops.example.com:8090", 200}, {"", 429}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+prefix+"whoami", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		r.Header.Set("Authorization", "Bearer "+secretOf("viewer"))
		got, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != c.want || got.ProtoMajor != 1 || got.Header.Get("Strict-Transport-Security") != "max-age=60" {
			t.Errorf("host %q: %d, want %d; %s %v", c.host, got.StatusCode, c.want, got.Proto, got.Header)
		}
	}
}

// TestServer_Panic: a panic of a handler is a problem without details, a log line with the stack, and no end of the process.
func TestServer_Panic(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	w.report = func() health.Report { panic("inside: " + "the details") }
	got := w.send(try{method: http.MethodGet, path: prefix + "status", token: "viewer"})
	if got.status != http.StatusInternalServerError || got.code() != string(codeInternal) || strings.Contains(got.text, "inside") {
		t.Errorf("%d %s", got.status, got.text)
	}
	lines := w.log.Lines(t, "request to the ops API failed")
	if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["stack"]), "server_test.go") {
		t.Errorf("%v", lines)
	}
	w.report = sampleReport
	if got := w.send(try{method: http.MethodGet, path: prefix + "status", token: "viewer"}); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// TestServer_Busy: while the allowed number of requests of one kind is running, another of that kind is refused, and
// requests of other kinds are answered.
func TestServer_Busy(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	for range cap(w.s.places[heavy]) {
		w.s.places[heavy] <- struct{}{}
	}
	busy := w.send(try{method: http.MethodGet, path: prefix + "positions", token: "viewer"})
	if busy.status != http.StatusTooManyRequests || busy.code() != string(codeBusy) || busy.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", busy.status, busy.text)
	}
	if got := w.send(try{method: http.MethodGet, path: prefix + "partitions", token: "viewer"}); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.text)
	}
	<-w.s.places[heavy]
	if got := w.send(try{method: http.MethodGet, path: prefix + "audit", token: "viewer"}); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// TestServer_FailedLogins: after too many wrong tokens an address must wait, and other addresses need not. A request
// without a token is no failed login.
func TestServer_FailedLogins(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w.s.now = func() time.Time { return now }
	want := func(token, remote string, status int) {
		t.Helper()
		if got := w.send(try{method: http.MethodGet, path: prefix + "whoami", token: token, remote: remote}); got.status != status {
			t.Errorf("%q from %s: %d, want %d", token, remote, got.status, status)
		}
	}
	for range 2 * maxLogins {
		want("", "[2001:db8::1]:1", http.StatusUnauthorized)
	}
	for range maxLogins {
		want("nobody", "[2001:db8::1]:1", http.StatusUnauthorized)
	}
	want("viewer", "[2001:db8::2]:1", http.StatusTooManyRequests)
	want("viewer", "[2001:db8:0:1::1]:1", http.StatusOK)
	want("viewer", "10.0.0.1:1", http.StatusOK)
	now = now.Add(loginEvery)
	want("viewer", "[2001:db8::1]:1", http.StatusOK)
	want("nobody", "[2001:db8::1]:1", http.StatusUnauthorized)
	want("viewer", "[2001:db8::1]:1", http.StatusTooManyRequests)
}

// TestLogins_Bound: with failed logins from any number of addresses, at most maxClients addresses are remembered.
func TestLogins_Bound(t *testing.T) {
	l, now := newLogins(), time.Now()
	for i := range 3 * maxClients {
		l.failed(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32), now.Add(time.Duration(i)))
	}
	if len(l.all) > maxClients {
		t.Errorf("%d addresses", len(l.all))
	}
}

// TestServer_ReadOnly: without a tokens file, requests from this machine may read and change nothing, and requests from
// other machines are refused.
func TestServer_ReadOnly(t *testing.T) {
	w := newWorld(t, "topics: {orders: {bad_records: dead_letter}}", `listen: "127.0.0.1:0"`)
	w.Create("orders", 1)
	w.run()
	for id, op := range operations(w.doc) {
		row, role := rows()[id], fmt.Sprint(op.op.Extensions["x-role"])
		r := try{method: op.method, path: op.path, body: row.body}
		if row.path != "" {
			r.path = row.path
		}
		got := w.send(r)
		switch readable := role == tokens.Viewer.String(); {
		case readable && got.status != max(row.status, http.StatusOK):
			t.Errorf("%s: %d %s", id, got.status, got.text)
		case !readable && (got.status != http.StatusForbidden || got.code() != string(codeReadOnly)):
			t.Errorf("%s: %d %s", id, got.status, got.text)
		}
		r.remote = "192.0.2.1:1"
		if got := w.send(r); got.status != http.StatusUnauthorized {
			t.Errorf("%s from another machine: %d %s", id, got.status, got.text)
		}
	}
	who := w.send(try{method: http.MethodGet, path: prefix + "whoami"}).json(t)
	if who["read_only"] != true || who["name"] != "anonymous" {
		t.Errorf("%v", who)
	}
	if n := len(w.entries()); n != 0 {
		t.Errorf("%d entries", n)
	}
}

// TestServer_Canaries: no response shows a secret of the configuration, or a part of a record, also when dependencies fail.
func TestServer_Canaries(t *testing.T) {
	url := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(url, []byte("redis://user:"+canary+"@127.0.0.1:1/0"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "topics: {orders: {bad_records: dead_letter}, users: {}}\nretry: {initial: 1ms, max: 1s}\nbreaker: {failures: 1}\nmembers: {store: redis, url_file: \""+url+"\"}", withTokens)
	w.Create("orders", 1)
	w.Create("users", 1)
	bad := &kgo.Record{Topic: "orders", Key: []byte(canary), Value: []byte(`{"n": "` + canary + `"}`), Headers: []kgo.RecordHeader{{Key: canary, Value: []byte(canary)}}}
	if err := w.Client.ProduceSync(t.Context(), bad, &kgo.Record{Topic: "users", Value: []byte(`{"n": 1}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	letter := w.LetterAbout(0, 0, bad.Value)
	letter.Key, letter.Headers = bad.Key, []deadletter.Header{{Key: canary, Value: []byte(canary)}}
	w.Create("orders-dlq", 1)
	w.WriteLetters(deadletter.Form{Pipeline: "p"}, "orders-dlq", letter)
	// A dead letter that another program wrote, with a part of the record in its error message.
	w.produce("orders-dlq", `{"original_topic": "orders", "original_partition": 0, "original_offset": 1, "error_message": "bad value `+canary+`"}`)
	held := func() {
		for id, op := range operations(w.doc) {
			row := rows()[id]
			r := try{method: op.method, path: op.path, body: row.body, token: "admin"}
			if row.path != "" {
				r.path = row.path
			}
			if id == "getDeadLetter" {
				r.path, r.contents = prefix+"deadletters/orders/0/0", true
			}
			w.send(r) // checks the response for canaries
		}
		for _, path := range []string{canary, prefix + canary, prefix + "holds?cursor=" + canary, prefix + "debug/pprof/" + canary} {
			w.send(try{method: http.MethodGet, path: "/" + strings.TrimPrefix(path, "/"), token: "admin"})
		}
	}
	held()
	if got := w.send(try{method: http.MethodGet, path: prefix + "deadletters?state=all", token: "viewer"}); got.json(t)["distinct"] != 2.0 {
		t.Error(got.text)
	}
	if got := w.send(try{method: http.MethodGet, path: prefix + "deadletters/orders/0/0", token: "replayer", contents: true}); strings.Count(got.text, canary) != 4 {
		t.Error(got.text)
	}
	w.Lake = w.As("kafka: {brokers: [", `kafka: {sasl: {mechanism: plain, username: u, password: `+canary+`}, brokers: [127.0.0.1:1, `)
	w.Broker.Close()
	w.open()
	w.s.within = 200 * time.Millisecond
	held()
	if strings.Contains(w.log.String(), canary) {
		t.Error("the log shows a secret")
	}
}

// TestServer_RegisteredMembers: the holds of other members are asked for at their addresses, without the caller's
// token, and the answer says which members' holds are not shown.
func TestServer_RegisteredMembers(t *testing.T) {
	server := miniredis.RunT(t)
	url := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(url, []byte("redis://"+server.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "topics: {orders: {}}\nmembers: {store: redis, url_file: \""+url+"\"}", withTokens)
	w.Create("orders", 1)
	store, err := redis.Open(redis.Options{URL: "redis://" + server.Addr(), Scope: membership.Scope{Pipeline: "p", Group: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	for id, address := range map[string]string{"m1": "", "m2": "http://nowhere.invalid:8080", "m3": "http://127.0.0.1:1"} {
		if _, err := store.Beat(t.Context(), membership.Beat{ID: id, Status: membership.Running, Idle: -1, Lag: -1, TTL: time.Hour, Address: address}); err != nil {
			t.Fatal(err)
		}
	}
	got := w.send(try{method: http.MethodGet, path: prefix + "holds", token: "viewer"})
	var answer struct {
		Members []admin.MemberAnswer `json:"members"`
		Missed  []string             `json:"missed"`
	}
	if err := json.Unmarshal([]byte(got.text), &answer); err != nil || got.status != http.StatusOK || len(answer.Members) != 3 {
		t.Fatalf("%v: %d %s", err, got.status, got.text)
	}
	answer.Members[1].Error = ""
	if d := cmp.Diff([]admin.MemberAnswer{
		{ID: "m1", State: admin.MemberNoAddress}, {ID: "m2", Address: "http://nowhere.invalid:8080", State: admin.MemberFailed}, {ID: "m3", State: admin.MemberNoAddress},
	}, answer.Members); d != "" {
		t.Errorf("members (-want +got):\n%s", d)
	}
	if !strings.Contains(strings.Join(answer.Missed, "\n"), "the holds that only the member m2 at http://nowhere.invalid:8080 knows are not shown: ") {
		t.Errorf("missed: %q", answer.Missed)
	}
	if got := w.send(try{method: http.MethodGet, path: prefix + "members", token: "viewer"}); !strings.Contains(got.text, `"address": "http://nowhere.invalid:8080"`) {
		t.Error(got.text)
	}
}

// TestServer_Pages: the pages of a list together have all its items, in order, and no page has more than limit. A
// cursor of another list, or a limit that is not allowed, is refused.
func TestServer_Pages(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	for i := range 5 {
		body := fmt.Sprintf(`{"targets": ["orders:%d"], "reason": "page"}`, i)
		if got := w.send(try{method: http.MethodPost, path: prefix + "pause", token: "operator", body: body}); got.status != http.StatusOK {
			t.Fatal(got.text)
		}
	}
	walk := func(path, field string, limit int) (items []any) {
		t.Helper()
		for cursor := ""; ; {
			got := w.send(try{method: http.MethodGet, path: fmt.Sprintf("%s%s?limit=%d&cursor=%s", prefix, path, limit, cursor), token: "viewer"})
			if got.status != http.StatusOK {
				t.Fatal(got.text)
			}
			page := got.json(t)[field].([]any)
			if items = append(items, page...); len(page) > limit {
				t.Errorf("%d items in a page of %d", len(page), limit)
			}
			next, more := got.json(t)["next"].(string)
			if !more {
				return items
			}
			cursor = next
		}
	}
	for i, e := range walk("audit", "entries", 2) {
		if e.(map[string]any)["seq"] != float64(i+1) {
			t.Errorf("entry %d: %v", i, e)
		}
	}
	if all := walk("config", "values", 7); len(all) < 50 {
		t.Errorf("%d values", len(all))
	}
	var ids []string
	for _, p := range walk("partitions", "partitions", 1) {
		ids = append(ids, fmt.Sprint(p.(map[string]any)["partition"]))
	}
	if strings.Join(ids, " ") != "2 10" {
		t.Errorf("partitions %v", ids)
	}
	next := w.send(try{method: http.MethodGet, path: prefix + "partitions?limit=1", token: "viewer"}).json(t)["next"].(string)
	for _, path := range []string{"audit?cursor=" + next, "partitions?topic=orders&cursor=" + next, "audit?cursor=x", "audit?cursor=%20", "partitions?cursor=*"} {
		if got := w.send(try{method: http.MethodGet, path: prefix + path, token: "viewer"}); got.code() != string(codeCursor) {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
	for _, path := range []string{"audit?limit=0", "audit?limit=1001", "audit?limit=x", "audit?limit=1&limit=2", "positions?topic=nope", "positions?topic=http://evil.example.com/", "audit?%zz"} {
		if got := w.send(try{method: http.MethodGet, path: prefix + path, token: "viewer"}); got.code() != string(codeInvalid) {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
}

// TestDecisions: a decision that changes nothing succeeds without an entry. A decision with an invalid target, reason,
// duration or Idempotency-Key is refused, and also leaves no entry.
func TestDecisions(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}, users: {bad_records: dead_letter}}", withTokens)
	send := func(path, body, key string) reply {
		t.Helper()
		r := try{method: http.MethodPost, path: prefix + path, token: "operator", body: body, header: map[string]string{}}
		if key != "" {
			r.header["Idempotency-Key"] = key
		}
		return w.send(r)
	}
	if got := send("pause", `{"all": true, "reason": "first"}`, ""); got.json(t)["changed"] != true {
		t.Fatal(got.text)
	}
	if got := send("pause", `{"all": true, "reason": "again"}`, ""); got.status != http.StatusOK || got.json(t)["changed"] != false || got.json(t)["entry"] != nil {
		t.Errorf("a pause of what is paused: %s", got.text)
	}
	for name, c := range map[string]struct {
		path, body, key string
		want            code
	}{
		"PartOfAPause":   {"resume", `{"targets": ["orders"], "reason": "x"}`, "", codeRefused},
		"NoTarget":       {"pause", `{"reason": "x"}`, "", codeInvalid},
		"AllAndTargets":  {"pause", `{"targets": ["orders"], "all": true, "reason": "x"}`, "", codeInvalid},
		"FlushPartition": {"flush", `{"targets": ["orders:1"], "reason": "x"}`, "", codeInvalid},
		"UnknownTopic":   {"pause", `{"targets": ["nope"], "reason": "x"}`, "", codeInvalid},
		"BadPartition":   {"pause", `{"targets": ["orders:x"], "reason": "x"}`, "", codeInvalid},
		"LongReason":     {"pause", `{"targets": ["orders"], "reason": "` + strings.Repeat("x", 1001) + `"}`, "", codeInvalid},
		"BlankReason":    {"pause", `{"targets": ["orders"], "reason": " "}`, "", codeInvalid},
		"LongAllowance":  {"deadletters/allow", `{"topic": "users", "for": "721h", "reason": "x"}`, "", codeInvalid},
		"NoAllowance":    {"deadletters/allow", `{"topic": "users", "reason": "x"}`, "", codeInvalid},
		"NoFlood":        {"deadletters/allow", `{"topic": "orders", "for": "1h", "reason": "x"}`, "", codeInvalid},
		"LongKey":        {"pause", `{"all": true, "reason": "x"}`, strings.Repeat("k", 201), codeInvalid},
		"KeyNotASCII":    {"pause", `{"all": true, "reason": "x"}`, "schlüssel", codeInvalid},
		"NestedTooDeep":  {"pause", strings.Repeat("[", 20000), "", codeInvalid},
		"WrongType":      {"pause", `{"targets": "orders", "reason": "x"}`, "", codeInvalid},
		"CaseOfAField":   {"pause", `{"Targets": ["orders"], "reason": "x"}`, "", codeInvalid},
		"SSRF":           {"pause", `{"targets": ["http://169.254.169.254/latest"], "reason": "x"}`, "", codeInvalid},
		"PathTraversal":  {"deadletters/allow", `{"topic": "../../x", "for": "1h", "reason": "x"}`, "", codeInvalid},
		"UnknownLevelOf": {"pause", `null`, "", codeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			if got := send(c.path, c.body, c.key); got.code() != string(c.want) {
				t.Errorf("%d %s", got.status, got.text)
			}
		})
	}
	w.T = t
	if n := len(w.entries()); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// TestDecisions_KeysOfOthers: if two operators choose the same Idempotency-Key, both decisions are recorded.
func TestDecisions_KeysOfOthers(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	for i, name := range []string{"operator", "admin"} {
		got := w.send(try{
			method: http.MethodPost, path: prefix + "holds/recheck", token: name, body: `{"all": true, "reason": "x"}`, header: map[string]string{"Idempotency-Key": "1"},
		})
		if got.status != http.StatusOK || got.header.Get("Idempotent-Replayed") != "" || len(w.entries()) != i+1 {
			t.Errorf("%s: %d %s", name, got.status, got.text)
		}
	}
	for _, e := range w.entries() {
		if e.Operator != "operator" && e.Operator != "admin" || e.Kind != opslog.KindRecheck || len(e.Once.Key) != 64 {
			t.Errorf("%+v", e)
		}
	}
}

// TestServer_Metrics: requests are counted by route and status. Requests to paths without a route are counted together
// as other.
func TestServer_Metrics(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	for range 2 {
		w.send(try{method: http.MethodGet, path: prefix + "whoami", token: "viewer"})
	}
	for i := range 3 {
		w.send(try{method: http.MethodGet, path: fmt.Sprint("/path/", i), token: "viewer"})
	}
	for labels, want := range map[[2]string]float64{{"GET whoami", "200"}: 2, {"other", "404"}: 3} {
		var m dto.Metric
		if err := w.s.requests.WithLabelValues(labels[0], labels[1]).Write(&m); err != nil || m.GetCounter().GetValue() != want {
			t.Errorf("%v: %v, want %v", labels, m.GetCounter().GetValue(), want)
		}
	}
}

// TestServer_Flushes: the list has, for each table, what became of the newest request to flush it: the batch that this
// member sealed for it, or the state nothing if there was nothing to seal.
func TestServer_Flushes(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	got := w.send(try{method: http.MethodGet, path: prefix + "flush", token: "viewer"})
	all, _ := got.json(t)["flushes"].([]any)
	if len(all) != 2 || got.json(t)["member"] != "m1" {
		t.Fatal(got.text)
	}
	if sealed, nothing := all[0].(map[string]any), all[1].(map[string]any); sealed["batch_id"] != "m1-7" || sealed["offsets"] != 12.0 || sealed["state"] != "sealed" || nothing["state"] != "nothing" || nothing["table"] != "users" {
		t.Error(got.text)
	}
}

// TestServer_Level: the level that an admin sets is in force, and the log says who did it.
func TestServer_Level(t *testing.T) {
	w := newWorld(t, "topics: {orders: {}}", withTokens)
	got := w.send(try{method: http.MethodPut, path: prefix + "loglevel", token: "admin", body: `{"level": "debug", "reason": "look"}`})
	if got.json(t)["level"] != "debug" || got.json(t)["before"] != "info" || w.s.Level.Level() != slog.LevelDebug {
		t.Errorf("%s, level %v", got.text, w.s.Level)
	}
	if lines := w.log.Lines(t, "log level changed"); len(lines) != 1 || lines[0]["operator"] != "admin" || lines[0]["reason"] != "look" {
		t.Errorf("%v", lines)
	}
	if got := w.send(try{method: http.MethodPut, path: prefix + "loglevel", token: "admin", body: `{"level": "trace", "reason": "x"}`}); got.code() != string(codeInvalid) {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// TestNew_BadFile: a member does not start with a tokens file that it cannot use.
func TestNew_BadFile(t *testing.T) {
	for key, set := range map[string]func(*config.Ops){
		"ops.tokens_file": func(o *config.Ops) { o.TokensFile = "gone" }, "ops.web_config_file": func(o *config.Ops) { o.WebConfigFile = "gone" },
	} {
		c := config.Default()
		set(&c.Ops)
		_, err := New(t.Context(), Options{Config: c, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
