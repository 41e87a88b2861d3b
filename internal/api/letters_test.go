package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/admin"
	"sluice/internal/laketest"
	"sluice/reliability/deadletter"
	"sluice/sink/opslog"
)

// newLetters returns a world with dead letters about orders:0@1 to orders:0@5 and orders:1@1. All records of orders
// have rows, so these dead letters are void.
func newLetters(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "topics: {orders: {bad_records: dead_letter}, users: {}}", withTokens)
	w.Create("orders", 2)
	w.Create("users", 1)
	w.Create("orders-dlq", 2)
	w.Produce("orders", 6, 0, 1)
	w.run()
	w.Has("orders", laketest.UpTo(6, "orders:0", "orders:1"))
	for _, at := range []struct {
		partition int32
		offset    int64
	}{{0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {1, 1}} {
		letter := w.LetterAbout(at.partition, at.offset, []byte(fmt.Sprintf("<value %d>", at.offset)))
		w.WriteLetters(deadletter.Form{Pipeline: "p"}, "orders-dlq", letter)
	}
	return w
}

// TestDeadLetters_Pages: the pages together list each dead letter once, in the order of records. Each page has the
// counts of all pages. Wrong parameters are refused.
func TestDeadLetters_Pages(t *testing.T) {
	w := newLetters(t)
	var got []string
	for cursor := ""; ; {
		page := w.send(try{method: http.MethodGet, path: prefix + "deadletters?topic=orders&state=all&limit=4&cursor=" + cursor, token: "viewer"})
		if page.status != http.StatusOK {
			t.Fatal(page.text)
		}
		all := page.json(t)
		if all["distinct"] != 6.0 || all["matching"] != 6.0 || all["void"] != 6.0 {
			t.Error(page.text)
		}
		for _, l := range all["listed"].([]any) {
			l := l.(map[string]any)
			got = append(got, fmt.Sprintf("%v:%v@%v", l["topic"], l["partition"], l["offset"]))
		}
		next, more := all["next"].(string)
		if !more {
			break
		}
		cursor = next
	}
	if d := cmp.Diff("orders:0@1 orders:0@2 orders:0@3 orders:0@4 orders:0@5 orders:1@1", strings.Join(got, " ")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for query, want := range map[string]code{
		"state=lost": codeInvalid, "since=soon": codeInvalid, "topic=nope": codeInvalid, "limit=0": codeInvalid, "cursor=x": codeCursor,
		"topic=users": codeInvalid, // bad_records: hold
	} {
		if got := w.send(try{method: http.MethodGet, path: prefix + "deadletters?" + query, token: "viewer"}); got.code() != string(want) {
			t.Errorf("%s: %d %s", query, got.status, got.text)
		}
	}
}

// TestDeadLetters_Memory: a request for more dead letters than its memory allows is refused.
func TestDeadLetters_Memory(t *testing.T) {
	w := newLetters(t)
	a := w.s.access(true)
	defer a.Close()
	if a.LetterBytes != letterBytes {
		t.Errorf("%d bytes", a.LetterBytes)
	}
	a.LetterBytes = 500
	q := admin.LetterQuery{Topic: "orders", Within: w.s.within, Paged: true}
	if _, err := admin.DeadLetters(t.Context(), a, q); problemOf(err).Code != codeRefused {
		t.Error(err)
	}
	q.Reason = "syntax" // those that are not selected take no memory
	if _, err := admin.DeadLetters(t.Context(), a, q); err != nil {
		t.Error(err)
	}
}

// TestDeadLetter: a request can name a dead letter by the coordinates of its record or by its own. The response has the
// content of the record, and the log names the reader.
func TestDeadLetter(t *testing.T) {
	w := newLetters(t)
	show := func(path string) reply {
		t.Helper()
		return w.send(try{method: http.MethodGet, path: prefix + "deadletters/" + path, token: "replayer"})
	}
	list := w.send(try{method: http.MethodGet, path: prefix + "deadletters?state=all&limit=1", token: "viewer"}).json(t)["listed"].([]any)
	at := list[0].(map[string]any)["letter"].(map[string]any)
	for _, path := range []string{"orders/0/1", fmt.Sprintf("orders-dlq/%v/%v", at["partition"], at["offset"])} {
		got := show(path)
		if got.status != http.StatusOK {
			t.Fatal(got.text)
		}
		letter := got.json(t)["dead_letter"].(map[string]any)
		if letter["original_value"] != "<value 1>" || letter["original_key"] != "k" || letter["original_offset"] != 1.0 || letter["dlq_version"] != "1.0" {
			t.Error(got.text)
		}
	}
	lines := w.log.Lines(t, "dead letter read")
	if len(lines) != 2 || lines[0]["operator"] != "replayer" || lines[1]["topic"] != "orders" || lines[1]["partition"] != 0.0 || lines[1]["offset"] != 1.0 {
		t.Errorf("%v", lines)
	}
	for path, want := range map[string]code{
		"orders/0/99": codeNotFound, "orders/x/1": codeInvalid, "orders/0/-1": codeInvalid, "nope/0/1": codeInvalid, "orders/0": codeNotFound, "../0/1": codeNotFound,
		"orders/0/1?topic_id=other": codeNotFound,
	} {
		if got := show(path); got.code() != string(want) {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
}

// TestDeadLetters_Decisions: a wrong selection of dead letters is refused with the right code. A decision that is
// already in force succeeds and writes no entry.
func TestDeadLetters_Decisions(t *testing.T) {
	w := newMatrix(t)
	send := func(action, body string) reply {
		t.Helper()
		return w.send(try{method: http.MethodPost, path: prefix + "deadletters/" + action, token: "replayer", body: body})
	}
	if got := send("discard", `{"topic": "users", "reason": "x"}`); got.json(t)["changed"] != true || !strings.Contains(got.text, "discarded 2 dead letters") {
		t.Fatal(got.text)
	}
	if got := send("discard", `{"records": ["users:0@1", "users:0@2"], "reason": "again"}`); got.status != http.StatusOK || got.json(t)["changed"] != false {
		t.Error(got.text)
	}
	for body, want := range map[string]code{
		`{"records": ["users:0@1"], "reason": "x"}`:                   codeRefused, // it is discarded
		`{"records": ["users:0@9"], "reason": "x"}`:                   codeNotFound,
		`{"records": ["users-dlq:0@0"], "reason": "x"}`:               codeInvalid,
		`{"records": ["users:0"], "reason": "x"}`:                     codeInvalid,
		`{"records": ["users@1"], "reason": "x"}`:                     codeInvalid,
		`{"records": ["users:0@x"], "reason": "x"}`:                   codeInvalid,
		`{"records": ["users:0@1"], "topic": "users", "reason": "x"}`: codeInvalid,
		`{"records": ["users:0@1"], "code": "syntax", "reason": "x"}`: codeInvalid,
		`{"records": [], "reason": "x"}`:                              codeInvalid,
		`{"reason": "x"}`:                                             codeInvalid,
		`{"topic": "nope", "reason": "x"}`:                            codeInvalid,
		`{"topic": "orders", "reason": "x"}`:                          codeInvalid, // bad_records: hold
		`{"topic": "users", "topic_id": "a", "reason": "x"}`:          codeInvalid,
		`{"topic": "users", "states": ["lost"], "reason": "x"}`:       codeInvalid,
		`{"topic": "users", "since": "soon", "reason": "x"}`:          codeInvalid,
		`{"topic": "users", "until": "-1h", "reason": "x"}`:           codeInvalid,
	} {
		if got := send("acknowledge", body); got.code() != string(want) {
			t.Errorf("%s: %d %s", body, got.status, got.text)
		}
	}
	if got := send("reopen", `{"topic": "users", "code": "other", "reason": "x"}`); got.json(t)["changed"] != false {
		t.Error(got.text)
	}
	if n := len(w.entries()); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// TestDeadLetters_DiscardAt: DELETE of an offset in a dead-letter topic discards the dead letter there, if only one
// partition has one. Wrong requests are refused and write no entry.
func TestDeadLetters_DiscardAt(t *testing.T) {
	w := newMatrix(t)
	first := w.send(try{method: http.MethodGet, path: prefix + "deadletters?topic=users", token: "viewer"})
	if first.json(t)["unresolved"] != 2.0 {
		t.Fatal(first.text)
	}
	remove := func(path string) reply {
		t.Helper()
		return w.send(try{method: http.MethodDelete, path: prefix + "dlq/" + path, token: "replayer"})
	}
	for path, want := range map[string]code{
		"users-dlq/0?partition=0": codeInvalid, "users-dlq/0?partition=x&reason=x": codeInvalid, "users-dlq/x?reason=x": codeInvalid, "users-dlq/-1?reason=x": codeInvalid,
		"users-dlq/0?reason=x&dry_run=yes": codeInvalid, "users-dlq/9?reason=x": codeNotFound, "users-dlq/0?partition=1&reason=x": codeNotFound,
		"users/0?reason=x": codeInvalid, "nope-dlq/0?reason=x": codeInvalid, "users-dlq?reason=x": codeNotFound,
	} {
		if got := remove(path); got.code() != string(want) {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
	if got := remove("users-dlq/1?reason=a+test"); got.status != http.StatusOK || got.json(t)["changed"] != true { // one partition has it
		t.Error(got.text)
	}
	e := w.entries()
	if len(e) != 1 || e[0].Kind != opslog.KindDiscard || e[0].Reason != "a test" || e[0].Operator != "replayer" {
		t.Fatalf("%+v", e)
	}
	if list := w.send(try{method: http.MethodGet, path: prefix + "deadletters?topic=users&state=discarded", token: "viewer"}).json(t)["listed"].([]any); len(list) != 1 || list[0].(map[string]any)["offset"] != 2.0 {
		t.Errorf("%v", list)
	}
}

// TestDeadLetters_Ambiguous: if several partitions have a dead letter at the offset, the request is refused with 409
// and the response lists these dead letters.
func TestDeadLetters_Ambiguous(t *testing.T) {
	w := newWorld(t, "topics: {orders: {bad_records: dead_letter}}", withTokens)
	w.Create("orders", 2)
	w.Create("orders-dlq", 2)
	for partition := range int32(2) {
		encoded := deadletter.Form{Pipeline: "p", Envelope: deadletter.EnvelopeJSON}.Encode(w.LetterAbout(partition, 7, []byte("x")))
		if err := w.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders-dlq", Partition: partition, Value: encoded.Value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	got := w.send(try{method: http.MethodDelete, path: prefix + "dlq/orders-dlq/0?reason=x", token: "replayer"})
	want := []any{map[string]any{"letter": "orders-dlq:0@0", "record": "orders:0@7"}, map[string]any{"letter": "orders-dlq:1@0", "record": "orders:1@7"}}
	if d := cmp.Diff(want, got.json(t)["candidates"]); got.status != http.StatusConflict || got.code() != string(codeAmbiguous) || d != "" {
		t.Errorf("%d %s (-want +got):\n%s", got.status, got.text, d)
	}
}
