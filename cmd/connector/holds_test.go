package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/health/membership"
	"sluice/internal/admin"
	"sluice/reliability/hold"
)

// holds runs the command and returns its holds, a line each.
func (l *lake) holds(code int, args ...string) (lines []string) {
	l.T.Helper()
	out, errs := l.runs(code, append([]string{"holds", "-o", "json"}, args...)...)
	var all []admin.Hold
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		l.T.Fatalf("%v\n%s%s", err, out, errs)
	}
	for _, h := range all {
		offset := "-"
		if h.Offset != nil {
			offset = fmt.Sprint(*h.Offset)
		}
		lines = append(lines, fmt.Sprintf("%s %s at %s from %s: %s", h.Name(), h.Reason, offset, strings.Join(h.From, "+"), strings.TrimSuffix(h.Command, " --config "+l.Config)))
		if h.Detail == "" || h.EndsBy == "" {
			l.T.Errorf("%+v", h)
		}
	}
	return lines
}

func (l *lake) wantHolds(code int, want []string, args ...string) {
	l.T.Helper()
	if d := cmp.Diff(want, l.holds(code, args...)); d != "" {
		l.T.Errorf("holds (-want +got):\n%s", d)
	}
}

// TestHolds_Topic: with --topic the command shows the holds of that topic, from every source, and those of the whole
// pipeline.
func TestHolds_Topic(t *testing.T) {
	t.Parallel()
	l := newLake(t, twoTopics)
	l.Create("orders", 1)
	l.Create("users", 1)
	l.Produce("orders", 1, 0)
	l.Produce("users", 1, 0)
	l.runs(0, "run", "--until-current")
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"pipeline":"p","holds":[
			{"topic":"orders","partition":0,"reason":"store_down","detail":"no route","since":"2026-01-31T09:00:00Z","offset":-1},
			{"topic":"users","partition":0,"reason":"store_down","detail":"no route","since":"2026-01-31T09:00:00Z","offset":-1}]}`)
	}))
	t.Cleanup(member.Close)
	for _, of := range []string{"orders", "users"} {
		l.runs(0, "pause", of, "--yes", "--reason", "a test", "--operator", "ann")
	}
	for _, of := range []string{"orders", "users"} {
		l.wantHolds(1, []string{
			of + " paused at - from operations log: connector resume " + of + " --reason paused",
			of + ":0 store_down at - from " + member.URL + ": ",
		}, "--topic", of, "--member", member.URL)
	}
	l.runs(0, "resume", "users", "--yes", "--reason", "a test", "--operator", "ann")
	l.wantHolds(0, nil, "--topic", "users")
	l.runs(0, "pause", "--all", "--yes", "--reason", "a test", "--operator", "ann")
	l.wantHolds(1, []string{"everything paused at - from operations log: connector resume --all --reason paused"}, "--topic", "users")
}

// TestHolds expects the command holds to find every hold that table, Kafka and operations log show, with the command
// that ends it. After that command the hold must not be listed.
func TestHolds(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	l.wantHolds(0, nil)
	if out, _ := l.runs(0, "holds"); out != "nothing is held, as far as tables, Kafka and the operations log show; no member responded: --member URL asks one\n" {
		t.Error(out)
	}
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"pipeline":"p"}`) }))
	t.Cleanup(member.Close)
	if out, _ := l.runs(0, "holds", "--member", member.URL); out != "nothing is held\n" {
		t.Error(out)
	}
	bad := &kgo.Record{Topic: "orders", Partition: 1, Value: []byte(`{"n":"poison"}`)}
	l.Produce("orders", 2, 0)
	if err := l.Client.ProduceSync(t.Context(), bad).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.wantHolds(1, []string{"orders:1 poison at 5 from table and Kafka: connector offsets skip orders:1@5 --reason poison"}) // orders:0 is behind the end of its log, which is not a hold
	l.deleteRecords("orders", 0, 6)
	l.runs(0, "pause", "orders", "--yes", "--reason", "a test", "--operator", "ann")
	l.wantHolds(1, []string{
		"orders paused at - from operations log: connector resume orders --reason paused",
		"orders:0 behind_log_start at 5 from table and Kafka: connector offsets accept-gap orders:0 --reason behind_log_start",
		"orders:1 poison at 5 from table and Kafka: connector offsets skip orders:1@5 --reason poison",
	})
	out, _ := l.runs(1, "holds")
	for _, want := range []string{
		"orders:0   behind_log_start  -  ", "orders:1 poison: ", "  ends by: an operator: ", "  command: connector offsets skip orders:1@5 --reason poison --config " + l.Config + "\n",
		"orders paused: ann paused orders: a test\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	l.runs(0, "resume", "orders", "--yes", "--reason", "a test", "--operator", "ann")
	l.moves(0, "accept-gap", "orders:0")
	l.moves(0, "skip", "orders:1", "5")
	l.wantHolds(0, nil)
}

func TestHoldsBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {}, users: {}}")
	l.Create("orders", 1)
	l.group("p", "orders", 0, 0)
	l.wantHolds(1, []string{
		"orders:0 unknown_history at - from table and Kafka: connector offsets start orders --reason unknown_history",
		"users topic_missing at - from table and Kafka: ",
	})
}

// TestHoldsOfMembers expects holds to show the holds that only members know. For a hold that table and Kafka also show,
// it must take the start time from the member.
func TestHoldsOfMembers(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	l.deleteRecords("orders", 0, 5)
	l.Produce("orders", 2, 0)
	l.deleteRecords("orders", 0, 6)
	l.runs(0, "pause", "orders:1", "--yes", "--reason", "a test", "--operator", "ann")
	pipeline := "p"
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"pipeline":%q,"holds":[
			{"topic":"orders","partition":0,"reason":"behind_log_start","detail":"d","since":"2026-01-31T08:00:00Z","offset":5,"ends_by":"x"},
			{"topic":"orders","partition":1,"reason":"paused","detail":"d","since":"2026-01-31T08:00:00Z","offset":5},
			{"topic":"orders","partition":1,"reason":"store_down","detail":"no route","since":"2026-01-31T09:00:00Z","offset":-1}]}`, pipeline)
	}))
	t.Cleanup(member.Close)
	l.wantHolds(1, []string{
		"orders:0 behind_log_start at 5 from table and Kafka+" + member.URL + ": connector offsets accept-gap orders:0 --reason behind_log_start",
		"orders:1 paused at 5 from operations log+" + member.URL + ": connector resume orders:1 --reason paused",
		"orders:1 store_down at - from " + member.URL + ": ",
	}, "--member", member.URL+"/")
	out, _ := l.runs(1, "holds", "--member", member.URL, "-o", "json")
	var all []admin.Hold
	if err := json.Unmarshal([]byte(out), &all); err != nil || all[0].Since == nil || !all[0].Since.Equal(time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("%v\n%s", err, out)
	}

	pipeline = "other"
	for text, url := range map[string]string{
		`is of pipeline "other", not "p"`:    member.URL,
		"is no connector":                    member.URL + "/nothing",
		"the member at http://127.0.0.1:1: ": "http://127.0.0.1:1",
	} {
		if _, errs := l.runs(1, "holds", "--member", url); !strings.Contains(errs, text) {
			t.Errorf("%q does not say %q", errs, text)
		}
	}
}

// TestHoldsOfRegisteredMembers expects holds to ask the members that registered an address of another machine, and to
// name those whose holds it does not show. It must ask a member that is registered and also named by --member only
// once.
func TestHoldsOfRegisteredMembers(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	l := newOrders(t, 5)
	file := filepath.Join(l.Dir, "url")
	if err := os.WriteFile(file, []byte("redis://"+server.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	rewrite(t, l.Config, "pipeline: p\n", "pipeline: p\nmembers: {store: redis, url_file: "+file+"}\n")
	store := registrations(t, server.Addr())
	beat := func(id, address string) {
		t.Helper()
		if _, err := store.Beat(t.Context(), membership.Beat{ID: id, Status: membership.Running, Idle: 0, Lag: 0, TTL: time.Hour, Address: address}); err != nil {
			t.Fatal(err)
		}
	}
	beat("host-1-aa", "")
	if out, _ := l.runs(exitOK, "holds"); !strings.HasSuffix(out, "\nno address is registered (members.address) of host-1-aa: the holds that only they know are not shown\n") {
		t.Error(out)
	}
	requests := 0
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		_, _ = fmt.Fprint(w, `{"pipeline":"p","member":"host-1-aa","holds":[
			{"topic":"orders","partition":1,"reason":"store_down","detail":"no route","since":"2026-01-31T09:00:00Z","offset":-1}]}`)
	}))
	t.Cleanup(member.Close)
	beat("host-2-bb", member.URL) // as a hostile program may write it: an address of the machine that asks
	want := []string{"orders:1 store_down at - from host-1-aa: "}
	l.wantHolds(exitFound, want, "--member", member.URL)
	if requests != 1 {
		t.Errorf("the member got %d requests", requests)
	}
	out, _ := l.runs(exitOK, "members")
	if !regexp.MustCompile(`(?m)^ID .* ADDRESS$`).MatchString(out) || !regexp.MustCompile(`(?m)^host-2-bb .* -$`).MatchString(out) || strings.Contains(out, member.URL) {
		t.Error(out)
	}
	beat("host-3-cc", "http://nowhere.invalid:8080")
	if out, _ := l.runs(exitOK, "members"); !strings.Contains(out, " http://nowhere.invalid:8080\n") {
		t.Error(out)
	}
	_, errs := l.runs(exitFound, "holds", "--member", member.URL)
	if !strings.Contains(errs, "the holds that only the member host-3-cc at http://nowhere.invalid:8080 knows are not shown: ") || strings.Contains(errs, "host-2-bb at") {
		t.Error(errs)
	}
	l.wantHolds(exitFound, want, "--member", member.URL)
}

// TestPrintHolds_MembersWithoutAddress: if many members have no address, holds names five of them and the number of the
// others.
func TestPrintHolds_MembersWithoutAddress(t *testing.T) {
	t.Parallel()
	r := &admin.HoldReport{Member: true}
	for i := range 7 {
		r.Members = append(r.Members, admin.MemberAnswer{ID: fmt.Sprint("m", i), State: admin.MemberNoAddress})
	}
	r.Members = append(r.Members, admin.MemberAnswer{ID: "well", State: admin.MemberAnswered}, admin.MemberAnswer{ID: "down", State: admin.MemberFailed})
	var out strings.Builder
	if err := printHolds(&out, false, r); err != nil {
		t.Fatal(err)
	}
	if want := "nothing is held\n\nno address is registered (members.address) of m0, m1, m2, m3, m4 and 2 more: the holds that only they know are not shown\n"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

// TestHoldsOfAMember expects offsets show and check to show holds that only a member knows, such as flood.
func TestHoldsOfAMember(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"pipeline":"p","holds":[
			{"topic":"orders","partition":1,"reason":"flood","detail":"600 of 600 records","since":"2026-01-31T08:00:00Z","offset":5}]}`)
	}))
	t.Cleanup(member.Close)
	text := strings.ReplaceAll(read(t, l.Config), "health: {enabled: false}", fmt.Sprintf("health: {listen: %q}", member.Listener.Addr()))
	if err := os.WriteFile(l.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := l.runs(1, "offsets", "show")
	for _, want := range []string{`(?m)^orders:0 .* -$`, `(?m)^orders:1 .* flood$`, `(?m)^flood: 600 of 600 records$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	out, _ = l.runs(1, "check")
	for _, want := range []string{`(?m)^problem +hold +orders:1 +flood: 600 of 600 records$`, `to do: too many records .*: connector deadletters allow orders --reason flood --config ` + regexp.QuoteMeta(l.Config)} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	member.Close()
	l.runs(0, "offsets", "show")
}

// TestHolds_OneLineForManyPartitions expects one line and one command for many partitions of a topic that are held for
// the same reason. JSON must list each partition.
func TestHolds_OneLineForManyPartitions(t *testing.T) {
	t.Parallel()
	var all []*admin.Hold
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	add := func(id int32, reason hold.Reason, detail string, offset int64) {
		h := &admin.Hold{Topic: "orders", Partition: id, Reason: reason, Detail: detail, Since: new(noon.Add(time.Duration(-id) * time.Minute)), From: []string{"m"}}
		if offset >= 0 {
			h.Offset = &offset
		}
		h.EndsBy, h.Command = reason.EndsBy(), reason.Command(h.Topic, id, offset)
		all = append(all, h)
	}
	for _, id := range []int32{0, 1, 2, 3, 5, 7, 8} {
		add(id, hold.Flood, "all bad", 10+int64(id))
	}
	for id := range int32(3) {
		add(id, hold.StoreDown, "no route", -1)
	}
	add(4, hold.Flood, "half bad", 1)
	for id := range int32(4) { // each has a command of its own
		add(id, hold.BehindLogStart, "deleted", 5)
	}
	all = append(all, &admin.Hold{Partition: -1, Reason: hold.OperationsLog, Detail: "broken", EndsBy: hold.OperationsLog.EndsBy(), From: []string{"m"}})
	var out strings.Builder
	if err := printHolds(&out, false, &admin.HoldReport{Holds: all, Member: true}); err != nil {
		t.Fatal(err)
	}
	table, explained, _ := strings.Cut(out.String(), "\n\n")
	want := strings.TrimSpace(`
PARTITION         REASON            SINCE                 OFFSET    FROM
orders:0-3,5,7-8  flood             2026-01-31T11:52:00Z  10 to 18  m
orders:0          store_down        2026-01-31T12:00:00Z  -         m
orders:1          store_down        2026-01-31T11:59:00Z  -         m
orders:2          store_down        2026-01-31T11:58:00Z  -         m
orders:4          flood             2026-01-31T11:56:00Z  1         m
orders:0          behind_log_start  2026-01-31T12:00:00Z  5         m
orders:1          behind_log_start  2026-01-31T11:59:00Z  5         m
orders:2          behind_log_start  2026-01-31T11:58:00Z  5         m
orders:3          behind_log_start  2026-01-31T11:57:00Z  5         m
everything        operations_log    -                     -         m`)
	if d := cmp.Diff(want, table); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, want := range []string{
		"orders:0-3,5,7-8 flood: all bad\n", "  command: connector deadletters allow orders --reason flood\n", "orders:4 flood: half bad\n", "orders:0 store_down: no route\n  ends by itself once the store answers\n",
		"  command: connector offsets accept-gap orders:3 --reason behind_log_start\n",
	} {
		if !strings.Contains(explained, want) {
			t.Errorf("no %q in\n%s", want, explained)
		}
	}
}
